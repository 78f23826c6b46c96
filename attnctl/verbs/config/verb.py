"""What is said of config, whose work is done in `attnctl.inputs.config`."""

from __future__ import annotations

from attnctl.base.verb import Verb

VERB = Verb(
    name="config",
    section="Files",
    place=10,
    line="Write, check and describe YAML configs.",
    daily={
        "config init": "heads causal positions d_model seed config output force",
    },
    trial="init 'I love AI'",
)
