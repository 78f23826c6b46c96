"""`config init` writes whatever a setting may be, and it reads back: a law over the table of settings."""

import pytest
from setting_values import ways

from attnctl.inputs.config.fields import FIELDS, IN_PARTS, SETTABLE
from attnctl.inputs.config.load import load

PARTS = (key for form in IN_PARTS.values() for key in form.keys.values())
FLAGGED = {setting.name: setting for setting in (*FIELDS.values(), *SETTABLE, *PARTS) if setting.flag}


@pytest.mark.parametrize("setting", FLAGGED.values(), ids=FLAGGED)
def test_what_config_init_writes_reads_back(setting, tmp_path, call):
    flag, _, _ = ways(setting)
    done = call("config", "init", *flag.replace("'", "").split())
    assert done.code in {0, 2}, done.err  # 2: a flag of another verb, or one that needs more
    if done.code == 0:
        path = tmp_path / "c.yaml"
        path.write_text(done.out)
        load(str(path))
