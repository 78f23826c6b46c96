"""Statistics of a corpus in parts: constant in size, and the same whatever the parts and their order."""

from attnctl.verbs.corpus.part import CorpusPart, merge_parts, read_part
from attnctl.verbs.corpus.run import Job, measure_into, part_of

__all__ = ["CorpusPart", "Job", "measure_into", "merge_parts", "part_of", "read_part"]
