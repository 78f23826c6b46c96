from xformers.ops.fmha import *  # noqa: F403
