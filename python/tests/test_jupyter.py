"""The kernel of docs/use/python.md starts under its limit, is interrupted and restarted."""

import json
import pathlib
import sys

import pytest
from conftest import memory

from zfold._disk import command

pytest.importorskip("ipykernel", reason="no ipykernel: pip install ipykernel")
client = pytest.importorskip("jupyter_client", reason="no jupyter_client: pip install ipykernel")

LIMIT = 64 << 20

FILL = """
data = [(b"%d " % i) * 200_000 for i in range(200)]
assert all(part.startswith(b"%d " % i) for i, part in enumerate(data))
sum(map(len, data))
"""

RESIDENT = "[l.split()[1] for l in open('/proc/self/status') if l.startswith('RssAnon')][0]"


def execute(kernel, code, act=None):
    """Runs code, and returns how it ended and the text of its result."""
    texts = []

    def hook(message):
        content = message["content"]
        if message["msg_type"] == "execute_result":
            texts.append(content["data"]["text/plain"])
        if act and message["msg_type"] == "stream":
            act()

    reply = kernel.execute_interactive(code, timeout=120, output_hook=hook)["content"]
    return reply.get("ename", reply["status"]), "".join(texts)


def test_a_kernel_starts_under_its_limit_and_can_be_interrupted_and_restarted(
    tmp_path, monkeypatch
):
    memory("threads")
    text = (pathlib.Path(__file__).parents[2] / "docs/use/python.md").read_text()
    spec = json.loads(text.split("```json\n")[1].split("```")[0])
    ours = {"zfold": command(), "4GiB": str(LIMIT), "/usr/bin/python3": sys.executable}
    assert ours.keys() <= set(spec["argv"])
    spec["argv"] = [ours.get(word, word) for word in spec["argv"]]
    folder = tmp_path / "kernels" / "zfold"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    manager = client.KernelManager(kernel_name="zfold")
    manager.start_kernel()
    kernel = manager.blocking_client()
    try:
        kernel.start_channels()
        kernel.wait_for_ready(timeout=120)
        # Three times what may be resident.
        status, text = execute(kernel, FILL)
        assert status == "ok" and int(text) > 3 * LIMIT // 2, (status, text)
        status, text = execute(kernel, RESIDENT)
        # Stacks and what is on its way come on top.
        assert status == "ok" and int(text.strip("'")) << 10 < LIMIT * 3 // 2, text

        loop = "print('in it', flush=True)\nwhile True: pass"
        assert execute(kernel, loop, manager.interrupt_kernel)[0] == "KeyboardInterrupt"
        assert execute(kernel, "len(data)") == ("ok", "200")

        manager.restart_kernel(now=True)
        kernel.wait_for_ready(timeout=120)
        assert execute(kernel, "len(data)")[0] == "NameError"
        assert execute(kernel, "6 * 7") == ("ok", "42")
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)
