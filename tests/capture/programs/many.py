import resource
import sys

import numpy as np
from kernels import attend

q, k, v = np.random.default_rng(0).normal(size=(3, 1, 4, 16, 16)).astype(np.float32)
for _ in range(int(sys.argv[1])):
    attend(q, k, v)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
