#include <CLI/CLI.hpp>

#include "cli/cli.h"

namespace braid {
namespace {

template <class T, class To>
CLI::Option* add_number(CLI::App& app, const char* name, To& value, const char* help, Bounds<T> range) {
  const std::string words = name, first = words.substr(0, words.find(','));
  const CLI::callback_t read = [&value, first, range](const CLI::results_t& given) {
    const Result<T> number = parse_number<T>(given.back(), first, range);
    if (!number) throw WrongValue{number.error()};
    value = *number;
    return true;
  };
  return app.add_option(name, read, help)->type_name(std::is_integral_v<T> ? "INT" : "FLOAT")->take_last();
}

}  // namespace

void OptionAdder::operator()(const char* name, bool& value, const char* help) {
  app_.add_flag(name, value, help);
}
void OptionAdder::operator()(const char* name, int64_t& value, const char* help, Bounds<int64_t> range) {
  add_number<int64_t>(app_, name, value, help, range)->default_str(fmt::format("{}", value));
}
void OptionAdder::operator()(const char* name, double& value, const char* help, Bounds<double> range) {
  add_number<double>(app_, name, value, help, range)->default_str(fmt::format("{}", value));
}
void OptionAdder::operator()(const char* name, std::optional<int64_t>& value, const char* help,
                             Bounds<int64_t> range) {
  add_number<int64_t>(app_, name, value, help, range);
}
void OptionAdder::operator()(const char* name, std::optional<double>& value, const char* help,
                             Bounds<double> range) {
  add_number<double>(app_, name, value, help, range);
}
void OptionAdder::operator()(const char* name, std::string& value, const char* help) {
  CLI::Option* o = app_.add_option(name, value, help)->take_last();
  if (!value.empty()) o->capture_default_str();
}
void OptionAdder::operator()(const char* name, std::vector<std::string>& value, const char* help) {
  app_.add_option(name, value, help)->allow_extra_args(false);
}
void OptionAdder::several(const char* name, std::vector<std::string>& value, const char* help) {
  app_.add_option(name, value, help);
}
void OptionAdder::required(const char* name, std::string& value, const char* help) {
  app_.add_option(name, value, help)->required();
}
void OptionAdder::footer(std::function<std::string()> text) { app_.footer(std::move(text)); }

bool given(const CLI::App& app, const char* name) { return app.count(name) > 0; }

}  // namespace braid
