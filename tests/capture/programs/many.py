import sys
from pathlib import Path

import numpy as np
from kernels import attend

q, k, v = np.random.default_rng(0).normal(size=(3, 1, 4, 16, 16)).astype(np.float32)
for _ in range(int(sys.argv[1])):
    attend(q, k, v)
print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024)
