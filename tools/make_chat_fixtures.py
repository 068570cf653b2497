#!/usr/bin/env python3
"""Writes tests/data/chat/*.json: what transformers' chat templates give for our templates, conversations and snippets.

    python3 -m venv venv && venv/bin/pip install transformers jinja2
    venv/bin/python tools/make_chat_fixtures.py

Not part of the tests; they compare with the files it wrote.
"""

import datetime
import json
import pathlib

import jinja2
import transformers
from transformers.utils import chat_template_utils as hf

HERE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "chat"
NOW = datetime.datetime(2026, 3, 7, 14, 5, 9)


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


hf.datetime = FixedTime


def outcome(render):
    """The text, or the message of the error; None where only the fact of an error is compared."""
    try:
        text = render()
        text.encode("utf-8")  # fails for half a pair of surrogates
        return {"out": text}
    except jinja2.exceptions.UndefinedError as e:
        return {"error": None if "TemplateNamespace" in str(e) else str(e)}
    except jinja2.exceptions.TemplateError as e:
        return {"error": str(e) if type(e) is jinja2.exceptions.TemplateError else None}  # raise_exception
    except Exception:
        return {"error": None}


# ---- conversations

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place.\nNow or later.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Town, e.g. \"Zürich\" <CH>"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "array", "items": {"type": "integer"}, "default": [1, 2]},
                "limits": {"type": "object", "properties": {"low": {"type": ["number", "null"]}, "high": {"type": "number", "maximum": 1e16}}},
            },
            "required": ["place"],
        },
    },
}
ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 0.1}}},
                 "return": {"type": "number"}},
}
U, A, S, T = "user", "assistant", "system", "tool"


def m(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, id="call12345"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "question": dict(messages=[m(U, "Hello?")]),
    "system": dict(messages=[m(S, "Be brief."), m(U, " What is 2 + 2? \n")]),
    "turns": dict(messages=[m(S, "Be kind.\n"), m(U, "Hi"), m(A, "Hello! "), m(U, "How are you?"), m(A, "\nFine.\n"), m(U, "Good.")]),
    "ends_with_answer": dict(messages=[m(U, "Hi"), m(A, "Hello")]),
    "unicode": dict(messages=[m(S, "日本語で。"), m(U, "Grüße, 世界! 🙂 \u00a0\u2028é"), m(A, "¿Qué?\tñ"), m(U, "ИМЯ ß ﬁ")]),
    "empty_content": dict(messages=[m(S, ""), m(U, ""), m(A, ""), m(U, "x")]),
    "think_inline": dict(messages=[m(U, "1+1"), m(A, "<think>\nEasy.\n</think>\n\n2"), m(U, "2+2"), m(A, "<think>\nHard.\n</think>\n\n4")]),
    "think_field": dict(messages=[m(U, "1+1"), m(A, "2", reasoning_content="one and one\n"), m(U, "more"), m(A, "ok", reasoning_content="\nhm")]),
    "think_other_name": dict(messages=[m(U, "1+1"), m(A, "2", reasoning="by counting")]),
    "think_none": dict(messages=[m(U, "1+1"), m(A, "2", reasoning_content=None), m(U, "?")]),
    "tools": dict(messages=[m(S, "Use tools."), m(U, "Weather in Zürich?")], tools=[WEATHER, ADD]),
    "tools_no_system": dict(messages=[m(U, "Weather?")], tools=[WEATHER]),
    "tools_empty": dict(messages=[m(U, "Weather?")], tools=[]),
    "calls": dict(messages=[
        m(S, "Use tools."), m(U, "Weather in Zürich and 1+2?"),
        m(A, "", tool_calls=[call("get_weather", {"place": "Zürich", "days": [1, 2.5, -0.0], "limits": {"low": None, "high": 1e22}, "ok": True})]),
        m(T, "{\"t\": 21.5}", tool_call_id="call12345"), m(A, "It is 21.5."), m(U, "Thanks")], tools=[WEATHER, ADD]),
    "two_calls": dict(messages=[
        m(U, "Both"), m(A, "I look.", tool_calls=[call("add", {"a": 1, "b": 2}, "abcdefghi"), call("add", {"b": "\"q\"\n", "a": 1e-7}, "jklmnopqr")]),
        m(T, "3", tool_call_id="abcdefghi"), m(T, "4", tool_call_id="jklmnopqr")], tools=[ADD]),
    "call_arguments_text": dict(messages=[m(U, "x"), m(A, None, tool_calls=[call("add", "{\"a\":1}")]), m(T, "2")], tools=[ADD]),
    "call_bare": dict(messages=[m(U, "x"), m(A, "", tool_calls=[{"name": "add", "arguments": {"a": 1}}])], tools=[ADD]),
    "call_no_arguments": dict(messages=[m(U, "x"), m(A, "", tool_calls=[{"id": "abcdefghi", "type": "function", "function": {"name": "now"}}])]),
    "result_object": dict(messages=[m(U, "x"), m(A, "", tool_calls=[call("add", {})]), m(T, {"content": 5, "ok": [True, None]})], tools=[ADD]),
    "parts": dict(messages=[m(U, [{"type": "text", "text": "See: "}, {"type": "image", "image": "a.png"}, {"type": "text", "text": " ok?"}]), m(A, "Yes"),
                            m(U, [{"type": "image_url", "image_url": {"url": "b"}}])], number_images=True),
    "image_in_system": dict(messages=[m(S, [{"type": "image", "image": "a"}]), m(U, "x")]),
    "unknown_part": dict(messages=[m(U, [{"type": "sound", "data": "z"}])]),
    "missing_content": dict(messages=[{"role": U}, m(A, "ok")]),
    "missing_role": dict(messages=[{"content": "x"}]),
    "content_none": dict(messages=[m(U, None)]),
    "content_number": dict(messages=[m(U, 5)]),
    "unknown_role": dict(messages=[m(U, "x"), m("alien", "y")]),
    "two_users": dict(messages=[m(U, "x"), m(U, "y")]),
    "assistant_first": dict(messages=[m(A, "x"), m(U, "y")]),
    "late_system": dict(messages=[m(U, "x"), m(S, "y"), m(U, "z")]),
    "only_system": dict(messages=[m(S, "x")]),
    "only_system_tools": dict(messages=[m(S, "x")], tools=[ADD]),
    "tool_response_as_user": dict(messages=[m(U, "q"), m(A, "a", reasoning_content="r"), m(U, "<tool_response>x</tool_response>"), m(A, "b", reasoning_content="s")]),
    "documents": dict(messages=[m(U, "Summarise")], documents=[{"title": "two words", "text": "a b c, d-e"}, {"title": "", "text": "x"}]),
    "thinking_off": dict(messages=[m(U, "Hi")], enable_thinking=False),
    "thinking_on": dict(messages=[m(U, "Hi")], enable_thinking=True),
    "day": dict(messages=[m(U, "Hi")], day="1 Jan 2000"),
    "tools_beside_system": dict(messages=[m(S, "s"), m(U, "Hi")], tools=[ADD], tools_beside_user=False, ready_made=["search", "hidden", "add"]),
    "ready_made": dict(messages=[m(U, "Hi"), m(A, "", tool_calls=[call("add", {"b": 2, "a": 1.5, "C": None})])], ready_made=["search", "add"]),
    "own_tools": dict(messages=[m(U, "Hi")], own_tools=[{"name": "x"}]),
    "short_id": dict(messages=[m(U, "Hi"), m(A, "", tool_calls=[call("add", {}, "abc")])]),
    "specials_in_text": dict(messages=[m(U, "<|im_end|>{{ x }}{% y %}{# z #}\\n"), m(A, "\"quoted\" & <b>'s</b>")]),
    "extra_fields": dict(messages=[m(U, "Hi", name="Bob", items=[1]), m(A, "x", audio=None)]),
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def conversations():
    cases = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for name in CONVERSATIONS:
            for prompt in (False, True):
                given = {**TOKENS, **CONVERSATIONS[name], "add_generation_prompt": prompt}
                arguments = dict(given)
                chat = arguments.pop("messages")
                got = outcome(lambda: hf.render_jinja_template(conversations=[chat], chat_template=source, **arguments)[0][0])
                cases.append({"template": path.name, "conversation": name, "add_generation_prompt": prompt, **got})
    return {"tokens": TOKENS, "conversations": CONVERSATIONS, "cases": cases}


# ---- small pieces of the language

CONTEXT = {
    "a": 7, "b": -3, "f": 2.5, "s": "Hello, World", "u": "Grüße 世界🙂", "e": "", "n": None, "t": True, "no": False,
    "l": [3, 1, 2], "w": ["pear", "Apple", "fig", "apple"], "d": {"z": 1, "a": {"k": [1, 2]}, "items": "shadowed", "Title": None},
    "people": [{"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []}, {"name": "Cid", "age": 31}],
    "text": "  one\n\ttwo three\r\nfour  ", "big": 9007199254740993, "html": "<a href=\"x\">'&'</a>",
    "nested": {"l": [{"m": {"n": [10, 20]}}]},
}

WHITESPACE = [
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "a  {%- if t -%}  b  {%- endif -%}  c", "{%+ if t %}x{% endif +%}\ny",
    "  {%+ if t %}x{%+ endif %}\n  y", "x\n   {# note #}\n y", "x {#- note -#} y", "x\n  {{ a }}\n  y", "x {{- a -}} y", "{{ a }}\n{{ b }}\n", "\n\n{{ a }}\n\n\n",
    "{% raw %}{{ x }}{% endraw %}", "a {%- raw -%}  {% if %} {{ y }}  {%- endraw -%} b", "  {% raw %}\n x\n  {% endraw %}\n y", "{% raw %}\n{% endraw %}x", "{%raw%}{%endraw%}|",
    "line\r\nnext\r{% if t %}\r\nx{% endif %}\r\n", "\t{% set x = 1 %}\t{{ x }}", "a{% if t %}\n\n\nb{% endif %}", "{% if t -%}\n\n  b{% endif %}", "{{ 'x' -}}\n  \n{{- 'y' }}",
    "{% for i in l %}\n  {{ i }}\n{% endfor %}\nend", "{% for i in l -%}\n  {{ i }}\n{%- endfor %}", "{#\nmany\nlines\n#}\nx", "a{# x #}\nb", "a\n{#- x #}\nb", "a {# x +#}\nb", "  {{- a }}  ",
    "{% if t %}{% endif %}\n{% if t %}{% endif %}\n", "x{% if t %}\n{% endif %}y", "\u00a0{%- if t %}x{% endif %}", "a\u2003{%- if t -%}\u2003b{% endif %}", "{{a}}{{b}}", "{", "{ {", "%}", "}}", "{ % x", "a{b}c",
    "{{ '{{' }}", "{{ '%}' }}", "{{ \"}}\" }}", "{% set x = '%}' %}{{ x }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a':{}} }}", "{#- a -#}{#- b -#}", "  {# a #}  {# b #}  x", "x\n{% if t %}y{% endif %}\n\nz",
    "{% if t %} {% endif %}\n   {% if t %}q{% endif %}", "{%- for x in l %}\n{{- x }}\n{%- endfor -%}\n\n!", "{{ a }}   \n   {%- if t %} b {%- endif %}", "\n", "", " ", "\n\n", "x\n", "x\n\n",
]

STATEMENTS = [
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% for i in l %}{{ x is defined }}{% set x = i %}{% endfor %}", "{% if t %}{% set x = 5 %}{% endif %}{{ x }}", "{% if no %}{% set x = 5 %}{% endif %}{{ x }}|{{ x is defined }}",
    "{% for i in l %}{% if i == 1 %}{% set y = 1 %}{% endif %}{{ y }}{% endfor %}{{ y }}", "{% set a = a + 1 %}{{ a }}", "{% for i in l %}{% set a = a + i %}{{ a }},{% endfor %}{{ a }}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1,1,2] %}{{ loop.changed(i) }}{% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}", "{% for i in l if i > 5 %}x{% else %}none{% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}{{ loop.last }}{{ loop.length }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}", "{% for x in missing %}x{% else %}e{% endfor %}",
    "{% for (x, y) in [(1, 2), (3, 4)] %}{{ x + y }}{% endfor %}", "{% for x, (y, z) in [(1, (2, 3))] %}{{ x }}{{ y }}{{ z }}{% endfor %}", "{% for x, y in [1] %}{% endfor %}", "{% for x, y in [(1, 2, 3)] %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for i in l %}{% if loop.first %}{% continue %}{% endif %}{{ i }}{% else %}x{% endfor %}", "{% for i in l %}{% break %}{% else %}x{% endfor %}done", "{% break %}", "{% if t %}{% continue %}{% endif %}",
    "{% set ns = namespace(go=true) %}{% for i in l if ns.go %}{{ i }}{% set ns.go = false %}{% endfor %}", "{% set ns = namespace(n=0) %}{% for i in range(5) if ns.n < 3 %}{% set ns.n = ns.n + i %}{{ i }}{% endfor %}",
    "{% macro m(x, y=2, z=x) %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(x=5, z=0) }}|{{ m(y=1, x=9) }}", "{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m() }}", "{% macro m(x) %}{{ x is defined }}{% endmacro %}{{ m() }}", "{% macro m(x) %}{{ x + 1 }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "{% macro m(x) %}x{% endmacro %}{{ m(1, 2) }}", "{% macro m(x) %}x{% endmacro %}{{ m(q=2) }}", "{% macro m() %}{{ a }}{% endmacro %}{% set a = 'new' %}{{ m() }}", "{% macro m() %}{% set a = 1 %}{% endmacro %}{{ m() }}{{ a }}",
    "{% macro f(n) %}{{ n if n < 2 else (f(n - 1) | int) + (f(n - 2) | int) }}{% endmacro %}{{ f(10) }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in{{ a }}{% endcall %}",
    "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i=0) each(l) %}[{{ i }}:{{ v }}]{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{{ m }}{% macro m() %}{% endmacro %}{{ m is callable }}",
    "{% macro m() %}  a  {% endmacro %}[{{ m()|trim }}]", "{% macro m(a, b) %}{{ a ~ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(1, *[2]) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ caller() }}", "{% call 5 %}{% endcall %}",
    "{% set x %}hello {{ a }}{% endset %}[{{ x }}]", "{% set x | upper | trim %}  hello {{ a }} {% endset %}[{{ x }}]", "{% set x %}{% set q = 1 %}{% endset %}{{ q is defined }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set x, y = [1] %}", "{% set x = 1, 2 %}{{ x }}", "{% set (x, y) = (3, 4) %}{{ x }}{{ y }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | title %}banana bread{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% with x = 1, y = a %}{{ x }}{{ y }}{% endwith %}{{ x is defined }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}", "{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% generation %}x{{ a }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}", "{% for i in l %}{% generation %}{{ loop.index }}{{ i }}{% endgeneration %}{% endfor %}", "{% print a %}", "{% print a, b %}",
    "{% set ns = namespace() %}{{ ns.x is defined }}{% set ns.x = 1 %}{{ ns.x }}", "{% set ns = namespace({'x': 1}, y=2) %}{{ ns.x }}{{ ns['y'] }}", "{% set d.x = 1 %}", "{% set q.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = namespace() %}{{ ns.missing }}|{{ ns.missing.more }}",
    "{% set ns = namespace(a=1) %}{% set ns.a, ns.b = 2, 3 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l }}", "{% set ns = namespace(x=1) %}{% macro m() %}{% set ns.x = ns.x + 1 %}{% endmacro %}{{ m() }}{{ m() }}{{ ns.x }}",
    "{% if a > 5 and b < 0 %}1{% elif t %}2{% else %}3{% endif %}", "{% if no %}1{% elif n %}2{% elif 'x' %}3{% endif %}", "{% if l %}l{% endif %}{% if [] %}e{% endif %}{% if e %}s{% endif %}{% if 0.0 %}z{% endif %}", "{% if missing %}x{% else %}y{% endif %}", "{% if not missing %}x{% endif %}", "{% if a, %}x{% endif %}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% do l %}", "{% unknown %}", "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{% for %}{% endfor %}", "{% for x in l %}", "{% set = 1 %}", "{% set x = %}", "{% set 1 = x %}", "{% set true = 1 %}", "{{ }}", "{{ a", "{% if t", "{{ a b }}", "{{ 'abc }}", "{{ (a }}", "{{ a) }}", "{{ [1, 2 }}", "{# x",
    "{% raw %}x", "{% macro %}{% endmacro %}", "{% if t %}{% endfor %}", "{{ a ? b }}", "{{ a $ }}", "{{ 1..2 }}", "{{ a.|upper }}", "{{ |upper }}", "{{ a | }}", "{{ a is }}", "{{ a is not }}", "{% else %}", "{{ a = 1 }}", "{{ f(x=1, 2) }}", "{{ a! }}", "{{ a && b }}",
    "{{ a | nosuchfilter }}", "{{ a is nosuchtest }}", "{% if no %}{{ a | nosuchfilter }}{% endif %}ok", "{{ (a | nosuchfilter) if no else 'ok' }}", "{% if t %}{{ a | nosuchfilter }}{% endif %}", "{{ raise_exception('stop: ' ~ a) }}", "{% if no %}{{ raise_exception('x') }}{% endif %}fine", "{{ raise_exception() }}", "{{ raise_exception('ünï') }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", "{{ strftime_now('%d %b %Y, %A %B %j %p %I %y %%') }}", "{{ strftime_now('') }}", "{{ strftime_now('é %-d') }}", "{{ strftime_now is defined }}", "{% for i in range(3) %}{% set outer = loop %}{% for j in range(2) %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% set m = l %}{% for x in m %}{% set m = [] %}{{ m }}{{ x }}{% endfor %}", "{% for x in l %}{{ x }}{% set l = [] %}{% endfor %}{{ l }}", "{% if t %}{% for q in l %}{% endfor %}{{ q }}{% endif %}|", "{% for loop_var in l %}{{ loop is defined }}{% endfor %}{{ loop is defined }}",
]

EXPRESSIONS = """
a + b | a - b | a * b | a / b | a // b | a % b | a ** 2 | 2 ** -1 | 7 // 2 | -7 // 2 | 7 % -3 | -7 % 3 | 7.5 // 2 | -7.5 % 2 | 1 / 0 | 1 % 0 | 1 // 0.0 | 2 ** 3 ** 2 | -2 ** 2 | 2 ** 0.5 | 10 ** 18
1 + 2 * 3 | (1 + 2) * 3 | 1 - 2 - 3 | 2 * 3 % 4 | -a | +a | - - a | not a | not not a | not a == 7 | 1 + true | true + true | 1.0 + 1 | 3 / 3 | 1e3 | 1.5e-7 | 1E16 | 1e15 | 123456789012345678 | 0x1f | 0o17 | 0b101 | 1_000 | 0.1 + 0.2 | 1e22 | 1e-5 | 0.0001 | 100000.0 | 1.0 | -0.0 | 1e100 | 5e-324 | 2.5e+3
'a' + 'b' | 'a' * 3 | 3 * 'ab' | 'a' * -1 | [1] * 2 | [1] + [2] | (1,) + (2,) | [1] + (2,) | 'a' + 1 | 1 + 'a' | none + 1 | missing + 1 | 'x' ~ 1 ~ none ~ true ~ 1.5 ~ missing | 'a' ~ [1, 'b'] | a ~ b | 1 ~ 2 + 3 | 'a' 'b' "c"
a == 7 | a == 7.0 | a != 7 | 1 == true | 'a' == 'a' | 'a' == 1 | none == none | none == false | missing == missing | missing == none | [1, 2] == [1, 2] | [1] == (1,) | {'a': 1} == {'a': 1.0} | a < 10 | 1 < 2 < 3 | 1 < 3 < 2 | 3 > 2 > 1 | 1 < 2 > 1 == true | 'a' < 'b' | 'Z' < 'a' | [1, 2] < [1, 3] | 1 < 'a' | none < 1 | missing < 1 | 1 <= 1 | 2 >= 3
1 in l | 5 in l | 'ell' in s | 'z' in d | 'q' in d | 'q' not in d | not 'q' in d | 1 in 'abc' | 'a' in none | 'a' in missing | missing in l | 'x' in ('x', 'y') | (1, 2) in [(1, 2)] | a in [7] and t | 'ü' in u | '' in s | 1 in range(3) | 'k' in d.a | none in [none] | true in [1]
t and a | no and a | t or a | no or a | n or e or 'x' | a and b and f | no or n | '' and 'x' | [] or {} | t and no or a | a or missing | missing or 'd' | not no and t | missing and 1
a if t | a if no | 'x' if no else 'y' | 1 if t else 2 if t else 3 | (1 if no else 2) + 1 | 'a' if 1 else missing.x | a if missing else b | 'x' if a > 5 and b < 0 else 'y'
l[0] | l[-1] | l[5] | l[1:] | l[:-1] | l[::2] | l[::-1] | l[5:] | l[-2:] | l[1:1] | l[:] | l[2:0:-1] | l[::0] | l['0'] | l.0 | l[true] | l[1.0] | l[none] | s[0] | s[-1] | s[1:4] | s[::-1] | s[50] | u[2] | u[-1] | u[6:8] | u[::-2] | s[0:100] | s['upper']() | e[0] | (1, 2)[1] | range(5)[1] | range(5)[1:3] | list[0] | 'abc'[missing] | l[1:missing] | l['x':]
d.z | d['z'] | d.a.k[1] | d['a']['k'][0] | d.missing | d.missing.more | d['missing'] | d.items | d['items'] | d.Title | nested.l[0].m.n[1] | nested.l[0]['m'].n | missing.x | missing[0] | n.x | n['x'] | a.x | a.x.y | s.nothing | people[0].name | people[1]['age'] | people[9].name | d.get('z') | d.get('q') | d.get('q', 5) | d.get('Title', 5) | d['get']('z') | d[missing] | d[1] | d[none] | d[[1]]
d.keys() | d.values() | d.items() | d.keys()|list | d.items()|list | d.values()|list|length | d.items()|length | d.keys() | first | d.copy() | d.__class__ | d['__class__'] | s.__class__.__name__ | l.__len__() | d.update({'x': 1}) | d.pop('z') | l.append(1) | l.pop() | l.insert(0, 1) | l.extend([1]) | l.sort() | l.reverse() | d.clear() | d.setdefault('x', 1) | l.append is defined | l.remove(1) | l.index(1) | l.index(9) | l.count(3) | (1, 1).count(1) | l.copy()
[1, 'a', none, true, 1.5, [], {}, (), (1,), missing] | {'a': 1, 'b': [1, 2], 3: none} | {'a': 1, 'a': 2} | () | (1,) | 1, 2 | [[]] | {} | ['it\\'s', "say \\"hi\\"", 'both \\' and "', 'tab\\t', 'nl\\n', 'bs\\\\', 'é', '\\x01', '\\u200b', '🙂'] | {'k': 'v'}['k'] | [1, 2,] | {'a': 1,} | [1,2][0] | {1: 'a'}[1.0] | {true: 'x'}[1] | {[1]: 2} | [1, 2] | tojson | 'a\\tb\\n' | '\\x41\\u00e9\\U0001F642' | '\\101' | '\\q' | '\\é' | "\\'" | '\\ud800' | '\\N{DASH}' | true, True, false, False, none, None | 1.0 | 3.14159 | 1e16 | 123456789.123 | 0.1 | 1/3 | 2/3 | 1e21 | 9223372036854775807 | big | big + 1
""".strip("\n")

METHODS = """
s.upper() | s.lower() | s.title() | s.capitalize() | 'hELLO wORLD'.title() | "it's a dog's".title() | 'ß'.upper() | u.upper() | 'ÀÉ'.lower() | 'élan vital'.capitalize() | 'ǆ'.title() | 'abc'.upper().lower() | s.swapcase is defined
text.strip() | text.lstrip() | text.rstrip() | 'xxaxx'.strip('x') | 'xyaxy'.strip('yx') | 'xxa'.lstrip('x') | 'axx'.rstrip('x') | '\\n a \\n'.strip('\\n') | 'a'.strip('') | '\\u00a0a\\u3000'.strip() | 'éaé'.strip('é') | ''.strip() | s.strip(none)
s.split() | s.split(',') | s.split(', ') | text.split() | 'a,b,c'.split(',', 1) | 'a,b,c'.rsplit(',', 1) | 'a b c'.split(none, 1) | ' a  b  c '.split(none, 1) | ' a  b  c '.rsplit(none, 1) | 'a,b'.split(sep=',', maxsplit=0) | ''.split() | ''.split(',') | 'abc'.split('') | 'a--b'.split('-') | 'a<t>b</t>c'.split('</t>')[-1] | '  '.split() | 'a,b,c'.split(',')[-1] | 'a b'.split(maxsplit=0) | 'aXbX'.rsplit('X') | ' a b '.rsplit(none, 0)
s.startswith('Hell') | s.startswith('x') | s.startswith(('x', 'H')) | s.startswith('') | s.startswith('llo', 2) | s.endswith('World') | s.endswith(('d', 'x')) | s.endswith('Hello', 0, 5) | s.startswith(['H']) | s.startswith(1) | s.startswith() | ''.startswith('', 1)
s.replace('l', 'L') | s.replace('l', 'L', 1) | s.replace('', '-') | 'ü'.replace('', '-') | s.replace('zz', 'y') | s.replace('l', '') | s.replace('l', 1) | 'aaa'.replace('aa', 'b') | 'abc'.replace('', '-', 2)
', '.join(w) | ''.join([]) | '-'.join('abc') | ','.join(l) | ','.join(d) | ','.join(d.keys()) | s.find('o') | s.find('z') | s.find('o', 5) | s.rfind('o') | u.find('世') | s.count('l') | s.count('') | s.count('l', 4) | s.index('W') | s.index('zz') | 'a1'.isdigit() | '12'.isdigit() | ''.isdigit() | 'ab'.isalpha() | 'aé'.isalpha() | 'a1'.isalpha() | '²'.isdigit() | '٣'.isdigit() | 'a1'.isalnum() | ' \\t'.isspace() | 'AB'.isupper() | 'aB'.islower() | '12'.isupper()
text.splitlines() | 'a\\nb\\r\\nc\\rd'.splitlines() | 'a\\nb\\n'.splitlines(true) | ''.splitlines() | 'a\\x0bb\\u2028c'.splitlines() | 'prefix-x'.removeprefix('prefix-') | 'x.txt'.removesuffix('.txt') | 'abc'.removeprefix('z') | 'abc'.removesuffix('') | 'a=b=c'.partition('=') | 'a=b=c'.rpartition('=') | 'abc'.partition('=') | 'ab'.ljust(5) ~ '|' | 'ab'.rjust(5, '.') | 'ab'.center(5) ~ '|' | 'abc'.center(6) ~ '|' | '7'.zfill(3) | '-7'.zfill(4)
'{} {}'.format(1, 'a') | '{0}{1}{0}'.format('a', 'b') | '{x} {y.z}'.format(x=1, y={'z': 2}) | '{{}}{}'.format(1) | '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c') | '{:05d}'.format(42) | '{:.2f}'.format(3.14159) | '{:,}'.format(1234567) | '{!r}'.format('a') | '{:*^9}'.format('mid') | '{:+d}'.format(5) | '{:x}'.format(255) | '{:e}'.format(12345.678) | '{:%}'.format(0.25) | '{0[k]}'.format({'k': 1}) | '{'.format() | '{}'.format() | '{a}'.format() | '{:.3}'.format('abcdef') | '{:g}'.format(0.0001) | '{:>{}}'.format('a', 4) | '{}'.format(none) | '{:b}'.format(5) | '{:.1f}'.format(2) | '{:d}'.format('x') | '{:10.3f}|'.format(3.14159) | '{:<8}|'.format(1.5) | '{:,.2f}'.format(1234567.891)
'%s and %s' % ('a', 1) | '%d' % 5 | '%05.2f' % 3.14159 | '%s' % 'x' | '%s' % none | '%r' % 'x' | '%%' % () | '%x' % 255 | '%5s|%-5s|' % ('a', 'b') | '%(k)s' % {'k': 1} | '%s' % [1, 2] | '%s %s' % 'a' | '%s' % ('a', 'b') | '%e' % 12345.678 | '%g' % 0.00001 | '%+d' % 3 | '%d' % 3.9 | '%d' % 'x' | '%.3s' % 'abcdef' | '%i%%' % 50 | 'x' % 1 | '%03d' % 7 | '%c' % 'x'
range(3) | range(3)|list | range(1, 4)|list | range(5, 0, -2)|list | range(0) | range(0)|list | range(3)|length | range(2, 10, 3) | range(1000000) | range('a') | range(1, 2, 0) | range(-3, 3)|list | dict(a=1, b=2) | dict([('a', 1)]) | dict({'x': 1}, y=2) | dict() | dict(1) | namespace is defined | namespace().x | cycler is defined
""".strip("\n")

FILTERS = """
s|upper | s|lower | 'hello world-foo (bar) [baz]'|title | "it's"|title | 'hELLO'|capitalize | text|trim | 'xxaxx'|trim('x') | n|trim | missing|trim | a|upper | l|length | s|length | u|length | d|length | a|length | missing|length | n|length | l|count | range(4)|length | d|items|length
l|join | l|join(', ') | w|join('-') | people|join(', ', attribute='name') | []|join(',') | s|join('.') | missing|join | n|join | [1, none, true]|join('|') | d|join(',') | people|map(attribute='name')|join(', ') | l|join(d='+') | l|join(1)
missing|default('x') | n|default('x') | n|default('x', true) | e|default('x', true) | e|d('x') | missing|d | 0|default(5, boolean=true) | d.q|default(d.z) | missing.x|default('y') | l|first | l|last | []|first | []|last | s|first | s|last | d|first | d|last | l|map('string')|first | l|map('string')|last | n|first | missing|first | e|first|default('none')
s|replace('l', 'L') | s|replace('l', 'L', 1) | a|replace(7, 8) | n|replace('o', '0') | s|replace('l') | s|replace(old='l', new='_') | people|map(attribute='age')|list | people|map(attribute='tags.0')|list | people|map(attribute='tags', default='-')|list | people|map(attribute='missing')|list | w|map('upper')|list | w|map('replace', 'a', 'o')|list | w|map('length')|list | l|map('nosuch')|list | l|map|list | []|map('upper')|list | missing|map('upper')|list | people|map(attribute='name', default='x')|map('lower')|list | l|map('string')|map('length')|sum
l|select('odd')|list | l|select('gt', 1)|list | l|reject('gt', 1)|list | l|select|list | [0, 1, '', none]|select|list | [0, 1, '']|reject|list | people|selectattr('age', 'equalto', 31)|map(attribute='name')|list | people|selectattr('tags')|map(attribute='name')|list | people|rejectattr('tags')|map(attribute='name')|list | people|selectattr('tags', 'defined')|list|length | people|selectattr('nope', 'defined')|list | people|selectattr('name', 'in', ['Ann', 'Cid'])|map(attribute='age')|list | l|select('==', 3)|list | l|select('nosuch')|list | l|select('divisibleby', 3)|list | people|selectattr|list | missing|selectattr('x')|list | people|selectattr('age', 'ge', 26)|list|length | people|rejectattr('name', 'equalto', 'bob')|list|length
l|select('odd') is iterable | (l|select('gt', 9)) and 'true' | l|map('string') is sequence | (l|map('string'))|length | (l|map('string'))[0] | l|map('string')|list|length | (l|reverse)|list | l|reverse|first | s|reverse | l|reverse is sequence | d|reverse|list | missing|reverse|list | 5|reverse | u|reverse
l|sort | l|sort(reverse=true) | w|sort | w|sort(case_sensitive=true) | people|sort(attribute='age')|map(attribute='name')|list | people|sort(attribute='age,name')|map(attribute='name')|list | people|sort(attribute='age', reverse=true)|map(attribute='name')|list | [3, 'a']|sort | d|sort | missing|sort | w|unique|list | w|unique(case_sensitive=true)|list | [1, 1.0, true, 2]|unique|list | people|unique(attribute='age')|map(attribute='name')|list | [[1]]|unique|list | l|min | l|max | w|min | w|max(case_sensitive=true) | []|min | people|max(attribute='age') | [1, 'a']|min | l|sum | people|sum(attribute='age') | [0.1, 0.2]|sum | []|sum | [[1], [2]]|sum(start=[]) | l|sum(start=10) | ['a']|sum
d|dictsort | {'b': 1, 'A': 2}|dictsort | {'b': 1, 'A': 2}|dictsort(true) | {'b': 1, 'a': 2}|dictsort(by='value') | {'b': 1, 'a': 2}|dictsort(reverse=true) | l|dictsort | {'b': 1}|dictsort(by='x') | d|items|list | missing|items|list | l|items|list | s|list | d|list | range(3)|list | 5|list | l|string | s|string | n|string | 1.5|string | t|string | missing|string | [1.0, 'x']|string
'5'|int | '5.7'|int | 'x'|int | 'x'|int(9) | 5.9|int | -5.9|int | '0x1f'|int(base=16) | '1f'|int(0, 16) | ' 7 '|int | '1_000'|int | n|int | t|int | missing|int | '1e3'|int | ''|int | l|int | '-4'|int | '5'|float | 'x'|float | 'x'|float(1.5) | 3|float | '1e3'|float | 'inf'|float | 'nan'|float | '.5'|float | '5.'|float | n|float | '1_0.5'|float | '0b11'|int(0, 0)
2.5|round | 3.5|round | 2.675|round(2) | 1234.5|round(-2) | 7|round | 42.55|round(1) | 42.55|round(1, 'floor') | 42.51|round(1, 'ceil') | 42|round(0, 'floor') | 15|round(-1) | 25|round(-1) | 2.5|round|int | 'x'|round | 1.1|round(method='nope') | -5|abs | 5.5|abs | 'x'|abs | n|abs | t|abs | -2.5|round | 0.5|round | 1e300|round(2) | -0.4|round
html|escape | html|e | html|safe | html|escape|escape | ('<'|safe) + '<' | '<' + ('>'|escape) | ('<'|e) ~ '<' | html|forceescape | 5|escape | ('<b>'|safe) is escaped | '<'|e|upper | ('a'|safe)|tojson | ['<'|e] | ('x'|safe) == 'x' | ('<'|safe)|length
'a\\nb\\n\\nc'|indent | 'a\\nb\\n\\nc'|indent(2) | 'a\\nb\\n\\nc'|indent(2, true) | 'a\\nb\\n\\nc'|indent(2, false, true) | 'a\\nb'|indent('> ') | 'a\\nb'|indent(width=1, first=true) | ''|indent | 5|indent | missing|indent | 'a\\n'|indent | 'a'|center(5) ~ '|' | 'hello big world'|truncate(9) | 'hello big world'|truncate(9, true) | 'hello big world'|truncate(9, true, '..', 0) | 'hello big world'|truncate(9, leeway=0) | 'short'|truncate | 'one two, three-four'|wordcount | ''|wordcount | u|wordcount
[1,2,3,4,5]|batch(2)|list | [1,2,3,4,5]|batch(2, 0)|list | [1,2,3,4,5]|slice(2)|list | [1,2,3,4,5]|slice(3, 0)|list | []|batch(2)|list | l|batch(0)|list | l|slice(0)|list | people|groupby('age') | people|groupby('age')|map('first')|list | people|groupby('name')|map(attribute='grouper')|list | people|groupby('age')|map(attribute='list')|map('length')|list | people|groupby('nope', default='-')|length | [{'x': 'B'}, {'x': 'a'}, {'x': 'b'}]|groupby('x')|map(attribute='0')|list | '%s-%d'|format('a', 3) | '%(x)s'|format(x=1) | '%s'|format(1, y=2) | d|attr('z') | s|attr('upper') is callable | 'a'|format | s|nosuch
d|tojson | l|tojson | s|tojson | u|tojson | n|tojson | t|tojson | f|tojson | html|tojson | [1.0, 1e16, 1e-7, 100.0]|tojson | d|tojson(indent=2) | []|tojson(indent=2) | {}|tojson(indent=2) | [[], {}]|tojson(indent=1) | d|tojson(sort_keys=true) | d|tojson(separators=(',', ':')) | u|tojson(ensure_ascii=true) | '🙂'|tojson(true) | d|tojson(indent='\\t') | l|tojson(indent=0) | {1: 2, none: 3, true: 4, 1.5: 5}|tojson | (1, 2)|tojson | missing|tojson | [missing]|tojson | range(2)|tojson | d.items()|tojson | 'a\\nb\\t\\x01\\x7f"\\\\/'|tojson | people|tojson | d|tojson(indent=4, separators=(';', '=')) | ['\\u2028é']|tojson | {'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true, indent=3) | 'inf'|float|tojson | -0.0|tojson | big|tojson | {(1,): 2}|tojson | l|tojson|length | d|tojson(indent=none)
l|map('tojson')|join(',') | s|upper|lower|title | s|replace('o', '0')|upper | (a|string)|length | a|string|length | -a|abs | -5|abs + 1 | a + b|abs | l|length > 2 and 'y' | 'x' if l|length == 3 else 'z' | (l + [4])|last | l|first + l|last | not l|length == 3 | 'a,b'.split(',')|last|upper | d.a.k|join('/')|length | s|upper == 'HELLO, WORLD' | 1.5|int|string + '!' | s|truncate(5, true, '') | [1, [2, [3]]]|string
""".strip("\n")

TESTS = """
a is defined | missing is defined | missing is undefined | missing is not defined | d.q is defined | d.z is defined | n is defined | n is none | a is none | n is not none | s is string | a is string | d is mapping | l is mapping | l is sequence | s is sequence | d is sequence | a is sequence | (1,) is sequence | range(2) is sequence | d.items() is sequence | missing is sequence | l is iterable | s is iterable | a is iterable | n is iterable | missing is iterable | d.keys() is iterable
a is number | f is number | t is number | s is number | a is integer | f is integer | t is integer | f is float | a is float | t is boolean | a is boolean | n is boolean | t is true | no is false | 1 is true | 0 is false | n is false | a is odd | a is even | 0 is even | f is odd | 's' is odd | 9 is divisibleby 3 | 9 is divisibleby(4) | 9 is divisibleby 0 | a is eq 7 | a is equalto 7 | a is ne 8 | a is lt 8 | a is gt 8 | a is le 7 | a is ge 7 | a is lessthan 8 | a is greaterthan 8
1 is in [1, 2] | 'z' is in d | 5 is not in l | 'x' is in 'xyz' | 1 is in 5 | 'AB' is upper | 'Ab' is upper | 'ab' is lower | '1a' is lower | '' is lower | n is sameas none | t is sameas true | a is sameas 7 | l is sameas l | [] is sameas [] | 'a' is sameas 'a' | range is callable | s is callable | s.upper is callable | missing is callable | 'upper' is filter | 'nosuch' is filter | 'odd' is test | ('<'|e) is escaped | '<' is escaped
a is defined and a > 5 | missing is defined and missing.x | not missing is defined | a is not none and s is string | a is string or a is number | a is defined == true | (a is odd) == (7 is odd) | l is not string and l is iterable | d is mapping and 'z' in d | a is divisibleby 7 and t | a is number is string | missing.x is defined | d.q.x is defined | (a if no) is defined | 1 is eq 1.0 | [1] is eq [1] | a is in l or t | x is defined if t else 'no' | a is eq(7) | none is none | n is none or n == '' | s is not mapping
""".strip("\n")

OTHER = [
    "{% for x in l|sort %}{{ x }}{% endfor %}{% for x in l|reverse %}{{ x }}{% endfor %}", "{% set it = l|map('string') %}{{ it|join }}{{ it|join }}", "{% set it = l|select('odd') %}{% for x in it %}{{ x }}{% break %}{% endfor %}{{ it|list }}", "{% set it = l|map('string') %}{{ '1' in it }}{{ it|list }}",
    "{% for k, v in d|dictsort %}{{ k }}{{ loop.last }}{% endfor %}", "{% for k, v in d|items %}{{ loop.length }}{{ k }}{% endfor %}", "{% for p in people|groupby('age') %}{{ p.grouper }}:{{ p.list|length }} {% endfor %}", "{% for age, ps in people|groupby('age') %}{{ age }}{{ ps|map(attribute='name')|join }} {% endfor %}",
    "{% for row in range(7)|batch(3, '-') %}{{ row|join(' ') }};{% endfor %}", "{% set x = {'a': l} %}{{ x.a[0] }}{{ x['a']|sum }}", "{{ s[:5]|lower ~ '!' }}", "{{ (s.split(', ')|last)[0] }}", "{{ s.split(',')[0].strip().lower()[1:3] }}", "{{ people|map(attribute='name')|map('first')|join }}", "{{ {'a': 1}.items()|list|first|last }}",
    "{% set content = '<think>x</think>\\n\\ny' %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ content }}", "{{ 'yes' if 'x' in people[0].tags and people[1].tags == [] }}", "{{ 1 if 'tool_calls' in people[0] else 2 }}", "{% set x = none %}{{ x if x else 'none' }}{{ x or 'n' }}{{ x is none }}",
    "{% if messages is defined and messages|length > 0 %}x{% else %}y{% endif %}", "{% set a = [] %}{% for i in l %}{% set a = a + [i] %}{% endfor %}{{ a }}", "{{ l | map('string') | map('indent', 2, true) | list }}", "{{ (1, 2) == (1, 2) }}{{ [1, [2]] == [1, [2]] }}", "{{ d == d }}{{ people[0] == people[1] }}", "{{ people.index(people[2]) }}", "{{ people[-1] == people|last }}",
    "{{ 'a' if missing.x is defined else 'b' }}", "{{ missing.x.y }}", "{{ missing() }}", "{{ a() }}", "{{ s.nosuch() }}", "{{ n() }}", "{{ d.z() }}", "{{ missing['x'] }}", "{{ missing|upper }}|{{ missing ~ 'x' }}", "{{ -missing }}", "{{ missing * 2 }}", "{{ '%s' % missing }}", "{{ [missing, 1]|join(',') }}", "{{ missing in [1] }}",
    "{{ undefined_function(1) }}", "{{ people[0].nope.deeper }}", "{{ l[9].x }}", "{{ l.foo.bar }}", "{{ n.foo }}|", "{{ n.foo.bar }}", "{{ 5.foo }}", "{{ a.foo }}|{{ t.foo }}|{{ f.foo }}", "{{ s.foo }}|{{ e.foo }}", "{{ l.foo }}|{{ d.foo }}|{{ (1,).foo }}",
    "{{ a }}{# {{ b }} #}{{ f }}", "{%if t%}x{%endif%}", "{%-if t-%}x{%-endif-%}", "{{a|string|length}}", "{{-a-}}", "{{ a}}{{a }}", "{{\na\n}}", "{% if\nt\n%}x{% endif\n%}", "{% if t: %}x{% endif %}", "{% for x in l: %}{{ x }}{% endfor %}", "{% set x = [\n1,\n2\n] %}{{ x }}", "{{ a\n+\nb }}",
    "{% set long %}{% for i in range(30) %}{{ i }},{% endfor %}{% endset %}{{ long|length }}", "{{ range(3)|map('string')|list|tojson }}", "{{ 'x'.join(['a', 'b']) ~ \"y\" }}", "{{ '\\\\n' }}|{{ '\\n' }}|{{ \"\\\"\" }}", "{{ 'tab\\there' }}", "{{ 'été'|upper }}{{ 'ÉTÉ'.lower() }}", "{{ '日本語'[1] }}{{ '日本語'|length }}{{ '日本語'|reverse }}", "{{ '🙂🙃'[0] }}{{ '🙂🙃'|first }}",
    "{{ namespace(a=1).a }}", "{% set ns = namespace(found=false) %}{% for x in l %}{% if x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}", "{{ [a, b]|max }}{{ [a, b]|min }}", "{{ (a > 5) }}{{ (a > 5)|string|lower }}", "{{ true|string }}{{ true|tojson }}{{ true }}", "{{ 1 == 1.0 }}{{ '1' == 1 }}", "{{ none|tojson }}{{ none }}{{ none|string }}",
    "{% macro a1() %}{{ b1() }}{% endmacro %}{% macro b1() %}deep{% endmacro %}{{ a1() }}", "{% macro m(items) %}{% for i in items %}{{ i if i is not sequence else m(i) }}{% endfor %}{% endmacro %}{{ m([1, [2, [3, 4]], 5]) }}", "{% macro m(x='d') %}{{ x }}{% endmacro %}{{ m(none) }}{{ m('') }}{{ m(missing) }}", "{% set f = s.upper %}{{ f() }}", "{% set g = dict %}{{ g(a=1) }}",
    "{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m(1) }}", "{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}", "{% macro m(a, a2=a) %}{{ a2 }}{% endmacro %}{{ m('q') }}", "{{ m.name }}{% macro m() %}{% endmacro %}{{ m.name }}", "{% call(x) foo() %}{% endcall %}", "{% macro t1() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) t1() %}{{ b }}{{ a }}{% endcall %}{{ a }}",
]


def expressions(block):
    # " | " separates; a bar without spaces around is the filter's
    for line in block.split("\n"):
        for e in line.split(" | "):
            if e.strip():
                yield "{{ " + e.strip() + " }}"


def snippets():
    sources = WHITESPACE + STATEMENTS + OTHER
    for block in (EXPRESSIONS, METHODS, FILTERS, TESTS):
        sources += list(expressions(block))
    cases = []
    for source in dict.fromkeys(sources):
        got = outcome(lambda: hf._compile_jinja_template(source).render(**CONTEXT))
        if " at 0x" in str(got.get("out")):
            continue  # an address: different each time
        cases.append({"source": source, **got})
    return {"context": CONTEXT, "cases": cases}


def write(name, data):
    data = {"made_with": {"transformers": transformers.__version__, "jinja2": jinja2.__version__}, **data}
    cases = data.pop("cases")
    head = json.dumps(data, ensure_ascii=False, indent=1)[:-2]
    lines = ",\n  ".join(json.dumps(c, ensure_ascii=False) for c in cases)
    (HERE / name).write_text(head + ',\n "cases": [\n  ' + lines + "\n ]\n}\n", encoding="utf-8")
    print(f"{name}: {len(cases)} cases, {sum('error' in c for c in cases)} of them errors")


if __name__ == "__main__":
    write("conversations.json", conversations())
    write("snippets.json", snippets())
