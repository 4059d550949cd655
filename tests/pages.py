"""Pages in node: what the forward pass that an exported page carries makes of inputs."""

import json
import re
import shutil
import subprocess

NODE = shutil.which("node")


def script_of(page):
    """The forward pass in a page, without what needs a browser."""
    script = re.search(r"<script>\n(.*?)\n</script>", page, flags=re.S)[1]
    return script[: script.index("// What the pages are drawn with")]


def data_of(page, name="packed"):
    return json.loads(re.search(rf'id="data-{name}">(.*?)</script>', page)[1])


def in_node(page, ask, inputs=None):
    """What a JavaScript expression in ``model``, ``packed`` and ``inputs`` gives."""
    code = f"""{script_of(page)}
        const {{ packed, inputs }} = JSON.parse(require("fs").readFileSync(0, "utf8"));
        const model = load_model(packed);
        console.log(JSON.stringify({ask}));
    """
    given = json.dumps({"packed": data_of(page), "inputs": inputs})
    done = subprocess.run([NODE, "-e", code], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


#: Logits of every image or every text among the inputs.
LOGITS_OF_IMAGES = "inputs.map(image => Array.from(model.forward(Float32Array.from(image)).logits))"
LOGITS_OF_TEXTS = "inputs.map(tokens => Array.from(model.forward(tokens).logits.data))"
