// Templates against what transformers gave (tests/data/chat, written by tools/make_chat_fixtures.py), byte
// for byte.
#include "chat/template.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/rng.h"
#include "chat/text.h"
#include "io/file.h"
#include "io/ordered_json.h"
#include "io/test_dir.h"

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
  const Result<Json> all = load_ordered_json(kData + "conversations.json");
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

// Deviations, as docs/chat_templates.md lists them: cases where only the wording of an error or an integer
// beyond 64 bits differs.
int differing_snippets(const ChatTemplateOptions& options, bool tell) {
  const Result<Json> all = load_ordered_json(kData + "snippets.json");
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

}  // namespace
}  // namespace braid
