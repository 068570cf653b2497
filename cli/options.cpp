#include <CLI/CLI.hpp>

#include "cli/cli.h"

namespace braid {

void OptionAdder::operator()(const char* name, bool& value, const char* help) {
  app_.add_flag(name, value, help);
}
void OptionAdder::operator()(const char* name, int64_t& value, const char* help) {
  app_.add_option(name, value, help)->take_last()->capture_default_str();
}
void OptionAdder::operator()(const char* name, double& value, const char* help) {
  app_.add_option(name, value, help)->take_last()->capture_default_str();
}
void OptionAdder::operator()(const char* name, std::optional<int64_t>& value, const char* help) {
  app_.add_option(name, value, help)->take_last();
}
void OptionAdder::operator()(const char* name, std::optional<double>& value, const char* help) {
  app_.add_option(name, value, help)->take_last();
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
