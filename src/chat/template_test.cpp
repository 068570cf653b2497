// Templates against what transformers gave (tests/data/chat, written by tools/make_chat_fixtures.py), byte
// for byte.
#include "chat/template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/rng.h"
#include "chat/text.h"
#include "io/file.h"
#include "io/json.h"
#include "support/test_dir.h"

namespace braid {
namespace {

const std::string kData = BRAID_SOURCE "/tests/data/chat/";

// 7 March 2026, 14:05:09, as the files have it.
std::tm some_day() {
  std::tm t = {};
  t.tm_year = 126, t.tm_mon = 2, t.tm_mday = 7, t.tm_wday = 6, t.tm_yday = 65;
  t.tm_hour = 14, t.tm_min = 5, t.tm_sec = 9;
  return t;
}

ChatTemplateOptions on_that_day() {
  ChatTemplateOptions o;
  o.now = some_day();
  return o;
}

Result<std::string> render(std::string_view source, const Json& context = Json::object(),
                           const ChatTemplateOptions& options = on_that_day()) {
  const Result<ChatTemplate> t = ChatTemplate::parse(source, "t", options);
  if (!t) return t.error();
  return t->render(context);
}

// What differs from a case of the files; empty if nothing does.
std::string difference(const Json& c, const Result<std::string>& got) {
  if (c.contains("out")) {
    if (!got) return "error: " + got.error().what;
    return *got == c["out"].get<std::string>() ? "" : "got: " + *got;
  }
  if (got) return "no error, got: " + *got;
  const Json& wanted = c["error"];
  if (!wanted.is_string() || got.error().what.ends_with(": " + wanted.get<std::string>())) return "";
  return "other error: " + got.error().what;
}

int differing_conversations(const ChatTemplateOptions& options, bool tell) {
  const Result<Json> all = load_json(kData + "conversations.json");
  EXPECT_TRUE(all) << what(all);
  if (!all) return -1;
  int differing = 0;
  for (const Json& c : (*all)["cases"]) {
    const std::string file = c["template"], name = c["conversation"];
    const Result<ChatTemplate> t = ChatTemplate::load(kData + "templates/" + file, options);
    EXPECT_TRUE(t) << what(t);
    if (!t) return -1;
    Json context = (*all)["tokens"];
    context.update((*all)["conversations"][name]);
    context["add_generation_prompt"] = c["add_generation_prompt"];
    const std::string d = difference(c, t->render(context));
    differing += !d.empty();
    if (tell && !d.empty()) ADD_FAILURE() << file << ", " << name << "\nwanted " << c.dump() << "\n" << d;
  }
  EXPECT_GT((*all)["cases"].size(), 600u);
  return differing;
}

TEST(ChatTemplate, ConversationsAreThoseOfTransformers) {
  EXPECT_EQ(differing_conversations(on_that_day(), true), 0);
}

TEST(ChatTemplate, WithOtherWhiteSpaceRulesTheyAreNot) {  // mutants
  ChatTemplateOptions o = on_that_day();
  o.trim_blocks = false;
  EXPECT_GT(differing_conversations(o, false), 50);
  o = on_that_day();
  o.lstrip_blocks = false;
  EXPECT_GT(differing_conversations(o, false), 20);
  o = on_that_day();
  ++o.now->tm_mday;
  EXPECT_GT(differing_conversations(o, false), 20);
}

// Deviations, as docs/reference/chat_templates.md lists them: cases where only the wording of an error or an integer
// beyond 64 bits differs.
int differing_snippets(const ChatTemplateOptions& options, bool tell) {
  const Result<Json> all = load_json(kData + "snippets.json");
  EXPECT_TRUE(all) << what(all);
  if (!all) return -1;
  int differing = 0;
  for (const Json& c : (*all)["cases"]) {
    const std::string source = c["source"];
    const std::string d = difference(c, render(source, (*all)["context"], options));
    differing += !d.empty();
    if (tell && !d.empty()) ADD_FAILURE() << source << "\nwanted " << c.dump() << "\n" << d;
  }
  EXPECT_GT((*all)["cases"].size(), 900u);
  return differing;
}

TEST(ChatTemplate, SnippetsAreThoseOfJinja) { EXPECT_EQ(differing_snippets(on_that_day(), true), 0); }

TEST(ChatTemplate, SnippetsSeeTheWhiteSpaceRules) {  // mutants
  ChatTemplateOptions o = on_that_day();
  o.trim_blocks = false;
  EXPECT_GT(differing_snippets(o, false), 5);
  o = on_that_day();
  o.lstrip_blocks = false;
  EXPECT_GT(differing_snippets(o, false), 2);
}

// ---- errors

TEST(ChatTemplate, ErrorsNameTheLineAndTheConstruct) {
  const auto error = [](std::string_view source) { return what(render(source)); };
  EXPECT_TRUE(has(error("a\n\n{% include 'x' %}"), "t: line 3: the tag {% include %} is not supported"));
  EXPECT_TRUE(has(error("{% extends 'x' %}"), "{% extends %} is not supported"));
  EXPECT_TRUE(
      has(error("\n{% for x in y recursive %}{% endfor %}"), "line 2: a recursive loop is not supported"));
  EXPECT_TRUE(has(error("x\n{{ 1 | frobnicate }}"), "line 2: there is no filter 'frobnicate'"));
  EXPECT_TRUE(has(error("x\n{{ 1 is frobnicated }}"), "line 2: there is no test 'frobnicated'"));
  EXPECT_TRUE(has(error("{{ 'a'.swapcase() }}"), "line 1: str.swapcase() is not supported"));
  EXPECT_TRUE(has(error("{{ joiner() }}"), "joiner() is not supported"));
  EXPECT_TRUE(has(error("{% if true %}\n\n{{ x.y }}{% endif %}"), "line 3: 'x' is undefined"));
  EXPECT_TRUE(
      has(error("{% macro m() %}\n{{ raise_exception('no') }}{% endmacro %}\n\n{{ m() }}"), "line 2: no"));
  EXPECT_TRUE(has(error("{% if true %}"), "{% endif %} is missing"));
  EXPECT_TRUE(has(error("\n\n{{ 'abc"), "line 3: a string is not closed"));
  EXPECT_TRUE(has(error("{{ [].append(1) }}"), "access to attribute 'append' of 'list' object is unsafe."));
  EXPECT_TRUE(has(error("{{ {}.update({}) }}"), "access to attribute 'update' of 'dict' object is unsafe."));
  EXPECT_TRUE(has(error("{% do x %}"), "{% do %} is not supported"));
}

TEST(ChatTemplate, NumbersBeyond64BitsAreAnError) {
  for (const char* e :
       {"9223372036854775807 + 1", "12345678901234567890", "2 ** 63", "-9223372036854775807 - 2",
        "4611686018427387904 * 2", "'99999999999999999999'|int", "1e300|int"})
    EXPECT_TRUE(has(what(render("{{ " + std::string(e) + " }}")), "64 bits")) << e;
  EXPECT_TRUE(has(what(render("{{ x }}", {{"x", UINT64_MAX}})), "64 bits"));
  EXPECT_EQ(*render("{{ -9223372036854775807 - 1 }}"), "-9223372036854775808");
}

TEST(ChatTemplate, WhatIsNotUtf8IsAnError) {
  EXPECT_TRUE(has(what(render("a\xff")), "not UTF-8"));
  EXPECT_TRUE(has(what(render("{{ x }}", {{"x", "\xff"}})), "not UTF-8"));
}

TEST(ChatTemplate, AStrangersProgramIsStopped) {
  ChatTemplateOptions fewer = on_that_day();
  fewer.max_steps = 1'000'000;
  const auto error = [&](std::string_view source) { return what(render(source, Json::object(), fewer)); };
  // time
  EXPECT_TRUE(has(error("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
                  "too long"));
  EXPECT_TRUE(has(error("{% set ns = namespace(x='a') %}{% for i in range(99999) %}{% set ns.x = ns.x + ns.x "
                        "%}{% endfor %}"),
                  "too long"));
  EXPECT_TRUE(has(error("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] "
                        "%}{% endfor %}{{ ns.x }}"),
                  "too large"));
  EXPECT_TRUE(has(
      error("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      "nested too deep"));
  EXPECT_TRUE(has(error("{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = ns.x + ns.x "
                        "%}{% endfor %}"),
                  "t"));
  // memory
  EXPECT_TRUE(has(error("{{ 'a' * 9999999999 }}"), "too long"));
  EXPECT_TRUE(has(error("{{ [0] * 9999999999 }}"), "too long"));
  EXPECT_TRUE(has(error("{{ ('a' * 1000000)|replace('', 'b' * 1000000) }}"), "too long"));
  EXPECT_TRUE(has(error("{{ '%999999999d' % 1 }}"), "too large"));
  EXPECT_TRUE(has(error("{{ '{:999999999}'.format(1) }}"), "too large"));
  EXPECT_TRUE(has(error("{{ 'a'|center(99999999999) }}"), "too long"));
  EXPECT_TRUE(has(error("{{ 'a\nb'|indent(99999999999) }}"), "too long"));
  EXPECT_TRUE(has(error("{{ ['a']|batch(99999999999, 'x')|list }}"), "too long"));
  EXPECT_TRUE(has(error("{{ []|slice(99999999999)|list }}"), "too long"));
  EXPECT_TRUE(has(error("{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}"), "too"));
  // depth
  EXPECT_TRUE(has(error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "too deep"));
  EXPECT_TRUE(
      has(error("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}"), "too deep"));
  EXPECT_TRUE(has(error("{{ " + std::string(100000, '-') + "1 }}"), "too deep"));
  EXPECT_TRUE(has(error("{{ " + std::string(100000, '[') + std::string(100000, ']') + " }}"), "too deep"));
  std::string nots = "{{ ", ifs, sums = "{{ 1", dots = "{{ x", bars = "{{ x";
  for (int i = 0; i < 100000; ++i)
    nots += "not ", ifs += "{% if x %}", sums += "+1", dots += ".x", bars += "|e";
  for (const std::string& s : {nots + "1 }}", ifs, sums + " }}", dots + " }}", bars + " }}"})
    EXPECT_TRUE(has(error(s), "too deep")) << s.substr(0, 20);
  // what holds itself
  EXPECT_TRUE(render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns == ns }}"));
  EXPECT_TRUE(render("{% for x in [1] %}{% macro m() %}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}"));
  EXPECT_TRUE(has(
      error("{% set ns = namespace() %}{% for i in range(9999) %}{% for x in [ns.l] %}{% set ns.l = loop %}"
            "{% endfor %}{% endfor %}"),
      "too deep"));
  ChatTemplateOptions small;
  small.max_output = 10;
  EXPECT_TRUE(has(what(render("{{ x }}", {{"x", "12345678901"}}, small)), "too long"));
  EXPECT_EQ(*render("{{ x }}", {{"x", "1234567890"}}, small), "1234567890");
}

// Parts of templates cut, doubled, swapped and overwritten: an answer or an error, soon and without a crash.
TEST(ChatTemplate, AnyBytesAreSurvived) {
  std::vector<std::string> seeds;
  const Result<Json> snippets = load_json(kData + "snippets.json");
  ASSERT_TRUE(snippets);
  for (const Json& c : (*snippets)["cases"]) seeds.push_back(c["source"]);
  for (const auto& f : std::filesystem::directory_iterator(kData + "templates"))
    seeds.push_back(get(f.path()));
  std::ranges::sort(seeds);  // the folder comes in any order
  ChatTemplateOptions options = on_that_day();
  options.max_steps = 20'000;
  options.max_output = 1 << 16;
  options.max_memory = 1 << 22;
  Json context = (*snippets)["context"];
  context["messages"] = {{{"role", "user"}, {"content", "Hello"}}, {{"role", "assistant"}, {"content", "x"}}};
  Rng rng(7, "chat templates");
  const auto below = [&](size_t n) { return static_cast<size_t>(rng.below(std::max<size_t>(n, 1))); };
  int rendered = 0, refused = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::string s = seeds[below(seeds.size())];
    for (size_t changes = below(4) + 1; changes > 0; --changes) {
      const std::string& other = seeds[below(seeds.size())];
      const size_t at = below(s.size() + 1), n = below(20);
      switch (below(6)) {
        case 0:
          s.erase(at, n);
          break;
        case 1:
          s.insert(at, other.substr(below(other.size()), n));
          break;
        case 2:
          s.insert(at, s.substr(below(s.size()), n));
          break;
        case 3:
          if (at < s.size()) s[at] = static_cast<char>(below(256));
          break;
        case 4:
          s.insert(at, std::string_view("{}%#()[]|.-'\"\\ \n").substr(below(17), 1));
          break;
        default:
          s += other.substr(0, 200);
      }
    }
    const Result<std::string> r = render(s, context, options);
    (r ? rendered : refused) += 1;
    EXPECT_TRUE(!r || chat::is_utf8(*r)) << s;
  }
  EXPECT_GT(rendered, 500);
  EXPECT_GT(refused, 500);
}

// ---- files

const char* const kSays = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{% if tools %}T{% endif %}";

TEST(ChatTemplate, IsFoundInAModelsFolder) {
  const Json context = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}};
  Json with_tools = context;
  with_tools["tools"] = {{{"name", "x"}}};
  TestDir dir;
  EXPECT_TRUE(has(what(ChatTemplate::load(dir.path())), "no chat template"));
  EXPECT_TRUE(has(what(ChatTemplate::load(dir / "nothing")), "nothing"));

  // One string, tokens as string and object.
  Json config = {{"bos_token", "<s>"},
                 {"eos_token", {{"content", "</s>"}, {"lstrip", false}}},
                 {"chat_template", kSays}};
  put(dir / "tokenizer_config.json", config.dump());
  Result<ChatTemplate> t = ChatTemplate::load(dir.path());
  ASSERT_TRUE(t) << what(t);
  EXPECT_EQ(*t->render(context), "<s>hi</s>");
  EXPECT_EQ(t->special_tokens(), Json({{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  Json own = context;
  own["bos_token"] = "!";
  EXPECT_EQ(*t->render(own), "!hi</s>");

  // Named ones; a token that is null does not exist.
  config["chat_template"] = {{{"name", "default"}, {"template", "D{{ bos_token }}"}},
                             {{"name", "tool_use"}, {"template", "U{{ tools|length }}"}}};
  config["bos_token"] = nullptr;
  put(dir / "tokenizer_config.json", config.dump());
  t = ChatTemplate::load(dir.path());
  ASSERT_TRUE(t) << what(t);
  EXPECT_EQ(*t->render(context), "D");
  EXPECT_EQ(*t->render(with_tools), "U1");
  EXPECT_FALSE(t->special_tokens().contains("bos_token"));

  // A file of its own goes before; chat_template.jinja before chat_template.json.
  put(dir / "chat_template.json", Json({{"chat_template", "J{{ eos_token }}"}}).dump());
  EXPECT_EQ(*ChatTemplate::load(dir.path())->render(context), "J</s>");
  put(dir / "chat_template.jinja", "F{{ eos_token }}\n");
  EXPECT_EQ(*ChatTemplate::load(dir.path())->render(context), "F</s>");
  std::filesystem::create_directory(dir / "chat_templates");
  put(dir / "chat_templates/tool_use.jinja", "M");
  EXPECT_EQ(*ChatTemplate::load(dir.path())->render(with_tools), "M");
  EXPECT_EQ(*ChatTemplate::load(dir / "chat_template.jinja")->render(context), "F");

  put(dir / "chat_template.jinja", "\n{{ x");
  EXPECT_TRUE(has(what(ChatTemplate::load(dir.path())), "chat_template.jinja: line 2: "));
  put(dir / "bad.json", R"({"chat_template": 5})");
  EXPECT_TRUE(has(what(ChatTemplate::load(dir / "bad.json")), "chat_template: is neither a string nor a list"));
  put(dir / "bad.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_TRUE(has(what(ChatTemplate::load(dir / "bad.json")), "without \"name\" and \"template\""));
  put(dir / "bad.json", R"({"chat_template": {"rag": "x"}})");
  EXPECT_TRUE(has(what(ChatTemplate::load(dir / "bad.json")->render(context)), "no template named default"));
}

TEST(ChatTemplate, KeysKeepTheirOrder) {
  const Result<Json> j = parse_ordered_json(R"({"z": 1, "a": {"y": 2, "b": 3}, "z": 4})", "j");
  ASSERT_TRUE(j) << what(j);
  EXPECT_EQ(j->dump(), R"({"z":4,"a":{"y":2,"b":3}})");
  EXPECT_EQ(*render("{{ x|tojson }}", {{"x", *j}}), R"({"z": 4, "a": {"y": 2, "b": 3}})");
  EXPECT_TRUE(has(what(parse_ordered_json("{\"a\": [1,\n2", "j")), "j: line 2"));
  EXPECT_TRUE(has(what(parse_ordered_json(std::string(300, '['), "j")), "levels deep"));
}

TEST(ChatTemplate, WithoutThemToolsAreNoneAndTheTimeIsNow) {
  EXPECT_EQ(*render("{{ tools }}{{ documents }}{{ add_generation_prompt }}"), "NoneNoneFalse");
  const Result<std::string> year = render("{{ strftime_now('%Y') }}", Json::object(), {});
  ASSERT_TRUE(year);
  EXPECT_GE(std::stoi(*year), 2025);
}

}  // namespace
}  // namespace braid
