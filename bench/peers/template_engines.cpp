// One engine over the cases of template_engines.py: which templates it reads, how many texts are those of
// transformers, and how many of the errors it finds.
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#if defined(MINJA)
#include <minja/minja.hpp>
#elif defined(INJA)
#include <inja/inja.hpp>
#else
#include "chat/template.h"
#endif
#include <nlohmann/json.hpp>

using json = nlohmann::ordered_json;

std::tm some_day() {  // 7 March 2026, 14:05:09, as the cases have it
  std::tm t = {};
  t.tm_year = 126, t.tm_mon = 2, t.tm_mday = 7, t.tm_wday = 6, t.tm_yday = 65;
  t.tm_hour = 14, t.tm_min = 5, t.tm_sec = 9;
  return t;
}
std::string date(const std::string& format) {
  char text[256];
  const std::tm t = some_day();
  return {text, std::strftime(text, sizeof text, format.c_str(), &t)};
}

#if defined(MINJA)
void parse(const std::string& source) { minja::Parser::parse(source, {true, true, false}); }
std::string render(const std::string& source, const json& context) {
  const auto values = minja::Context::make(minja::Value(context));
  const auto now = [](const std::shared_ptr<minja::Context>&, minja::ArgumentsValue& a) {
    return minja::Value(date(a.args.at(0).get<std::string>()));
  };
  values->set("strftime_now", minja::Value::callable(now));
  return minja::Parser::parse(source, {true, true, false})->render(values);
}
#elif defined(INJA)
// With what chat templates expect of their surroundings.
inja::Environment environment() {
  inja::Environment e;
  e.set_trim_blocks(true), e.set_lstrip_blocks(true);
  e.add_callback("raise_exception", 1, [](inja::Arguments& a) -> inja::json {
    throw std::runtime_error(a.at(0)->get<std::string>());
  });
  e.add_callback("strftime_now", 1,
                 [](inja::Arguments& a) -> inja::json { return date(a.at(0)->get<std::string>()); });
  e.add_callback("tojson", [](inja::Arguments& a) -> inja::json { return a.at(0)->dump(); });
  e.add_callback("trim", 1, [](inja::Arguments& a) -> inja::json { return *a.at(0); });
  return e;
}
void parse(const std::string& source) { environment().parse(source); }
std::string render(const std::string& source, const json& context) {
  return environment().render(source, context);
}
#else
braid::ChatTemplate made(const std::string& source) {
  braid::ChatTemplateOptions options;
  options.now = some_day();
  auto t = braid::ChatTemplate::parse(source, "template", options);
  if (!t) throw std::runtime_error(t.error().what);
  return *t;
}
void parse(const std::string& source) { made(source); }
std::string render(const std::string& source, const json& context) {
  auto text = made(source).render(context);
  if (!text) throw std::runtime_error(text.error().what);
  return *text;
}
#endif

struct Score {
  int read = 0, texts = 0, same = 0, errors = 0, found = 0;
};

int main(int, char** argv) {
  json all;
  std::ifstream(argv[1]) >> all;
  std::map<std::string, Score> scores;
  for (const auto& [name, source] : all["templates"].items()) try {
      parse(source), scores[name].read = 1;
    } catch (const std::exception& e) {
      std::printf("%s: %s\n", name.c_str(), std::string(e.what()).substr(0, 200).c_str());
    }
  for (const json& c : all["cases"]) {
    Score& s = scores[c["template"]];
    std::string text;
    bool error = false;
    try {
      text = render(all["templates"][c["template"].get<std::string>()], c["context"]);
    } catch (const std::exception&) {
      error = true;
    }
    if (c.contains("out"))
      ++s.texts, s.same += !error && text == c["out"];
    else
      ++s.errors, s.found += error;
  }
  for (const std::string group : {"released/", "ours/"}) {
    Score sum;
    int templates = 0, right = 0;
    for (const auto& [name, s] : scores) {
      if (name.rfind(group, 0) != 0) continue;
      std::printf("%-70s %s, %d of %d texts, %d of %d errors\n", name.c_str(), s.read ? "read" : "NOT READ",
                  s.same, s.texts, s.found, s.errors);
      ++templates, right += s.same == s.texts && s.found == s.errors;
      sum.read += s.read, sum.texts += s.texts, sum.same += s.same, sum.errors += s.errors,
          sum.found += s.found;
    }
    std::printf("%s %d templates: %d read, %d right in every case; %d of %d texts, %d of %d errors\n",
                group.c_str(), templates, sum.read, right, sum.same, sum.texts, sum.found, sum.errors);
  }
}
