from flash_attn.flash_attn_interface import *  # noqa: F403
