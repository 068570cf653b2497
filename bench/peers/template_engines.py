"""What chat templates give in transformers, in Braid and in two libraries for C++: minja and inja.

    venv/bin/pip install transformers jinja2
    venv/bin/python bench/peers/template_engines.py --templates DIR --out cases.json    # DIR: *.jinja of released models
    g++ -std=c++20 -O1 -DFMT_SHARED -Isrc bench/peers/template_engines.cpp build/libbraid_{chat,io,tensor,base}.a -lfmt -lutf8proc -o braid_engine
    g++ -std=c++17 -O1 -DMINJA -I MINJA bench/peers/template_engines.cpp -o minja_engine
    g++ -std=c++17 -O1 -DINJA -DINJA_DATA_TYPE=nlohmann::ordered_json -I INJA bench/peers/template_engines.cpp -o inja_engine
    ./braid_engine cases.json

Conversations are those of tools/make_chat_fixtures.py, with and without a generation prompt. Not part of the tests.
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import make_chat_fixtures as fixtures  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--templates", type=pathlib.Path, required=True, help="folder of *.jinja and tokenizer_config.json files of released models")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    o = parser.parse_args()
    templates = {"released/" + p.name: p.read_text() for p in sorted(o.templates.glob("*.jinja"))}
    for p in sorted(o.templates.glob("*.json")):
        templates["released/" + p.name] = json.loads(p.read_text())["chat_template"]
    templates |= {"ours/" + p.name: p.read_text() for p in sorted((fixtures.HERE / "templates").glob("*.jinja"))}

    compile_template, context = fixtures.hf._compile_jinja_template, {}

    class Recorded:  # keeps what transformers gives the template to see
        def __init__(self, template):
            self.template = template

        def render(self, **values):
            context.clear()
            context.update(values)
            return self.template.render(**values)

    fixtures.hf._compile_jinja_template = lambda source: Recorded(compile_template(source))
    cases = []
    for name, source in templates.items():
        for conversation, given in fixtures.CONVERSATIONS.items():
            for prompt in (False, True):
                arguments = {**fixtures.TOKENS, **given, "add_generation_prompt": prompt}
                chat = arguments.pop("messages")
                got = fixtures.outcome(lambda: fixtures.hf.render_jinja_template(conversations=[chat], chat_template=source, **arguments)[0][0])
                cases.append({"template": name, "conversation": conversation, "context": dict(context), **got})
    o.out.write_text(json.dumps({"templates": templates, "cases": cases}))
    print(f"{len(templates)} templates, {len(cases)} cases, {sum('out' in c for c in cases)} texts")


if __name__ == "__main__":
    main()
