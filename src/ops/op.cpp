#include "ops/op.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <tuple>

#include "base/nearest.h"
#include "base/number.h"

namespace braid {
namespace {

std::vector<std::string> split(const std::string& text, const std::string& by) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(by, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + by.size();
  }
  return parts;
}

using Symbols = std::vector<std::string>;

Symbols symbols(const std::string& shape) { return split(shape, " "); }

// "[B, T, Hk, dk]", alternatives joined by "or".
std::string shape_text(const std::string& shape) {
  std::string text;
  for (const std::string& one : split(shape, " | ")) {
    text += (text.empty() ? "[" : " or [");
    for (size_t i = 0; const std::string& s : symbols(one)) text += (i++ ? ", " : "") + s;
    text += "]";
  }
  return text;
}

// What a symbol stands for, if that is known.
std::optional<int64_t> extent(const std::string& symbol, const std::map<std::string, int64_t>& dims) {
  const bool less = symbol.ends_with("-1");
  const auto at = dims.find(less ? symbol.substr(0, symbol.size() - 2) : symbol);
  if (at == dims.end()) return std::nullopt;
  return at->second - less;
}

bool holds_tokens(const Symbols& s) { return s.size() >= 2 && s[1] == "T"; }

std::vector<std::string> setting_names(const CallableOp& op) {
  std::vector<std::string> names;
  for (const OpSetting& s : op.settings) names.push_back(s.name);
  return names;
}

std::string form_list(const CallableOp& op) {
  std::string all;
  for (const OpForm& f : op.forms) all += (all.empty() ? "" : ", ") + f.name;
  return all;
}

std::string range_text(const OpSetting& s) {
  if (s.kind == OpSetting::Kind::kChoice) return fmt::format("{}", fmt::join(s.choices, " | "));
  return fmt::format("a {}number from {:g} to {:g}", s.kind == OpSetting::Kind::kWhole ? "whole " : "", s.low,
                     s.high);
}

// What is wrong with a value, or "".
std::string value_problem(const OpSetting& s, const std::string& text) {
  if (s.kind == OpSetting::Kind::kChoice)
    return std::find(s.choices.begin(), s.choices.end(), text) == s.choices.end() ? "is '" + text + "'" : "";
  const Result<double> x = parse_number<double>(text, s.name, {s.low, s.high});
  if (x && (s.kind != OpSetting::Kind::kWhole || *x == std::floor(*x))) return "";
  return "is '" + text + "'";
}

// What help and documentation say of one line of an entry.
std::string input_shape(const OpInput& in) {
  return (in.dtype == DType::kF32 ? "" : std::string(dtype_name(in.dtype)) + " ") + shape_text(in.shape);
}
std::string input_help(const OpInput& in) {
  switch (in.need) {
    case OpNeed::kRequired:
      return in.help;
    case OpNeed::kOptional:
      return "optional: " + in.help;
    case OpNeed::kCotangent:
      return "with --backward: " + in.help;
    case OpNeed::kOptionalCotangent:
      return "with --backward, optional: " + in.help;
  }
  return "";
}
std::string output_shape(const OpOutput& o) {
  return o.shape.starts_with("like ") ? o.shape : shape_text(o.shape);
}
std::string output_help(const OpOutput& o) { return (o.gradient ? "with --backward: " : "") + o.help; }
std::string form_help(const CallableOp& op, const OpForm& f) {
  return f.help + (f.backward ? "" : "; no backward") + (&f == &op.forms.front() ? " (default)" : "");
}
std::string setting_help(const OpSetting& s) {
  return s.help + (s.value.empty() ? "" : fmt::format(" (default {})", s.value));
}

constexpr uint64_t kMaxRows = (uint64_t{1} << 32) - 1;

}  // namespace

OpSetting number_setting(std::string name, std::string value, double low, double high, std::string help) {
  return {std::move(name), OpSetting::Kind::kNumber, std::move(value), low, high, {}, std::move(help)};
}
OpSetting whole_setting(std::string name, std::string value, double low, double high, std::string help) {
  return {std::move(name), OpSetting::Kind::kWhole, std::move(value), low, high, {}, std::move(help)};
}
OpSetting choice_setting(std::string name, std::string value, std::vector<std::string> choices,
                         std::string help) {
  return {std::move(name),    OpSetting::Kind::kChoice, std::move(value), 0, 0,
          std::move(choices), std::move(help)};
}

OpInput lengths_input() {
  return {"lengths", "B", OpNeed::kOptional,
          "tokens of each sequence; what follows them is padding: not read, zeros in the results",
          DType::kI32};
}

std::span<const CallableOp* const> all_callable_ops() {
  static const std::array kOps{&fast_weight_op(), &attention_op(), &delta_former_op(), &selective_scan_op(),
                               &short_conv_op()};
  return kOps;
}

const CallableOp* find_callable_op(std::string_view name) {
  for (const CallableOp* op : all_callable_ops())
    if (op->name == name) return op;
  return nullptr;
}

Error no_such_op(std::string_view name) {
  std::vector<std::string> names;
  for (const CallableOp* c : all_callable_ops()) names.push_back(c->name);
  return {fmt::format("op: name is '{}'", name), suggest(std::string(name), names)};
}

Result<OpCall> OpCall::make(const CallableOp& op, const OpOptions& o) {
  OpCall call(op, o);
  std::vector<Problem> problems;
  call.read_form(o.form, problems);
  call.read_settings(o.settings, problems);
  if (!problems.empty()) return to_error("op " + op.name + ": these options cannot be used", problems);
  return call;
}

void OpCall::read_form(const std::string& form, std::vector<Problem>& problems) {
  form_ = form.empty() ? op_->forms.front().name : form;
  const auto at =
      std::find_if(op_->forms.begin(), op_->forms.end(), [&](const OpForm& f) { return f.name == form_; });
  if (at == op_->forms.end())
    problems.push_back({option("form"), fmt::format("{} has no form '{}'", op_->name, form_),
                        "its forms: " + form_list(*op_)});
  else if (backward_ && !at->backward)
    problems.push_back(
        {dashes_ + "form", fmt::format("{} has no backward", form_),
         fmt::format("leave out {0}backward, or {0}form for {1}", dashes_, op_->forms.front().name)});
}

void OpCall::read_settings(const std::vector<std::string>& given, std::vector<Problem>& problems) {
  for (const OpSetting& s : op_->settings) settings_[s.name] = s.value;
  std::vector<std::string> seen;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const auto s = std::find_if(op_->settings.begin(), op_->settings.end(),
                                [&](const OpSetting& x) { return x.name == name; });
    if (s == op_->settings.end()) {
      problems.push_back({setting(text), fmt::format("'{}' is not a setting of {}", name, op_->name),
                          suggest(name, setting_names(*op_))});
    } else if (equals == std::string::npos) {
      problems.push_back({setting(text), "has no value", fmt::format("write {}=VALUE", name)});
    } else if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      problems.push_back({setting(text), "is given twice", "keep one"});
    } else if (const std::string wrong = value_problem(*s, text.substr(equals + 1)); !wrong.empty()) {
      problems.push_back({setting(name), wrong, "give " + range_text(*s)});
    } else {
      settings_[name] = text.substr(equals + 1);
    }
    seen.push_back(name);
  }
}

double OpCall::number(const std::string& setting) const {
  const std::string& text = settings_.at(setting);
  return text.empty() ? 0 : *parse_number<double>(text, setting);
}

Status OpCall::read(const SafeTensors& file, const std::string& file_name) {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : file.names()) tensors.push_back({name, *file.find(name)});
  return read(tensors, file_name);
}

Status OpCall::read(std::span<const NamedTensor> tensors, const std::string& where) {
  std::vector<Problem> problems;
  std::vector<std::string> known;
  for (const OpInput& in : op_->inputs) {
    known.push_back(in.name);
    const bool cotangent = in.need == OpNeed::kCotangent || in.need == OpNeed::kOptionalCotangent;
    if (cotangent && !backward_) continue;
    const auto at = std::ranges::find(tensors, in.name, &NamedTensor::name);
    if (at != tensors.end())
      read_input(in, at->view, problems);
    else if (in.need == OpNeed::kRequired || in.need == OpNeed::kCotangent)
      problems.push_back({in.name, "is missing",
                          fmt::format("add {}, {} {}", in.help, dtype_name(in.dtype), shape_text(in.shape))});
  }
  for (const auto& [name, view] : tensors) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      problems.push_back({name, "is not a tensor of " + op_->name, suggest(name, known)});
    if (std::ranges::count(tensors, name, &NamedTensor::name) > 1 &&
        std::ranges::none_of(problems, [&](const Problem& p) { return p.where == name; }))
      problems.push_back({name, "is given twice", "keep one"});
  }
  if (problems.empty()) {
    read_lengths(problems);
    if (op_->validate) op_->validate(*this, problems);
  }
  if (!problems.empty()) {
    Error e = to_error(fmt::format("op {}: {} cannot be used", op_->name, where), problems);
    e.fix = fmt::format("See: braid op {} --help", op_->name);
    return e;
  }
  if (Status s = make_outputs(); !s) return s;
  pack_inputs();
  return {};
}

void OpCall::read_input(const OpInput& in, const View& view, std::vector<Problem>& problems) {
  const auto problem = [&](std::string what, std::string fix) {
    problems.push_back({in.name, std::move(what), std::move(fix)});
  };
  if (view.dtype != in.dtype)
    problem(fmt::format("is {}", dtype_name(view.dtype)), fmt::format("give {}", dtype_name(in.dtype)));
  const std::string has = "has shape " + view.shape.text();
  const Symbols* match = nullptr;
  std::vector<Symbols> all;
  for (const std::string& one : split(in.shape, " | ")) all.push_back(symbols(one));
  for (const Symbols& s : all)
    if (static_cast<int>(s.size()) == view.shape.rank()) match = &s;
  if (!match) return problem(has, "expected " + shape_text(in.shape));
  for (int i = 0; i < view.shape.rank(); ++i)
    if (view.shape[i] == 0) return problem(has, "every extent must be 1 or more");
  bool wrong = false;
  std::string numbers;
  for (size_t i = 0; i < match->size(); ++i) {
    const std::string& symbol = (*match)[i];
    const int64_t here = view.shape[static_cast<int>(i)];
    const std::optional<int64_t> want = extent(symbol, dims_);
    if (!want && !symbol.ends_with("-1")) dims_[symbol] = here;
    wrong |= want && *want != here;
    numbers += (i ? ", " : "") + (want ? std::to_string(*want) : std::to_string(here));
  }
  if (wrong) return problem(has, fmt::format("expected {} = [{}]", shape_text(in.shape), numbers));
  inputs_[in.name] = {view, holds_tokens(*match), {}};
}

// Offsets of the packed sequences.
void OpCall::read_lengths(std::vector<Problem>& problems) {
  const size_t B = dim("B"), T = dim("T");
  if (B > kMaxRows / T) {
    problems.push_back({"B x T", fmt::format("is {} x {} tokens", B, T),
                        fmt::format("give at most {} in one file", kMaxRows)});
    return;
  }
  offsets_.assign(1, 0);
  const auto at = inputs_.find("lengths");
  for (size_t s = 0; s < B; ++s) {
    int64_t n = static_cast<int64_t>(T);
    if (at != inputs_.end()) n = at->second.view.as<int32_t>()[s];
    if (n < 0 || n > static_cast<int64_t>(T)) {
      problems.push_back(
          {"lengths", fmt::format("number {} is {}", s, n), fmt::format("give 0 to T = {}", T)});
      n = 0;
    }
    padding_ |= n < static_cast<int64_t>(T);
    offsets_.push_back(offsets_.back() + static_cast<uint32_t>(n));
  }
}

Status OpCall::make_outputs() {
  double bytes = 0;
  std::vector<std::tuple<std::string, Shape, bool>> wanted;
  for (const OpOutput& o : op_->outputs) {
    if (o.gradient && !backward_) continue;
    Shape shape;
    bool tokens = false;
    if (o.shape.starts_with("like ")) {
      const auto like = inputs_.find(o.shape.substr(5));
      if (like == inputs_.end()) continue;
      shape = like->second.view.shape, tokens = like->second.tokens;
    } else {
      for (const std::string& s : symbols(o.shape)) shape.push(*extent(s, dims_));
      tokens = holds_tokens(symbols(o.shape));
    }
    double size = sizeof(float);
    for (int i = 0; i < shape.rank(); ++i) size *= static_cast<double>(shape[i]);
    bytes += size;
    wanted.emplace_back(o.name, shape, tokens);
  }
  // A few rows of many numbers each can ask for a state of any size.
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes > memory)
    return Error{fmt::format("op {}: the results would take {:.3g} GB; this machine has {:.3g} GB", op_->name,
                             bytes * 1e-9, memory * 1e-9),
                 "use fewer heads or smaller states"};
  for (const auto& [name, shape, tokens] : wanted) outputs_.emplace(name, Output{shape, tokens});
  return {};
}

void OpCall::pack_inputs() {
  for (auto& [name, in] : inputs_) {
    if (!padding_ || !in.tokens) continue;
    const size_t width = in.view.shape.count() / (dim("B") * dim("T"));
    in.packed = Tensor(DType::kF32, {static_cast<int64_t>(rows()), static_cast<int64_t>(width)});
    for (size_t s = 0; s + 1 < offsets_.size(); ++s)
      std::copy_n(in.view.as<float>().data() + s * dim("T") * width, (offsets_[s + 1] - offsets_[s]) * width,
                  in.packed.as<float>().data() + offsets_[s] * width);
  }
}

const float* OpCall::data(const std::string& input) const {
  const auto at = inputs_.find(input);
  if (at == inputs_.end()) return nullptr;
  const Input& in = at->second;
  return padding_ && in.tokens ? in.packed.as<float>().data() : in.view.as<float>().data();
}

Mat<const float> OpCall::tokens(const std::string& input) const {
  if (!has(input)) return {};
  return {data(input), rows(), shape(input).count() / (dim("B") * dim("T"))};
}

float* OpCall::data_out(const std::string& output) {
  const auto at = outputs_.find(output);
  return at == outputs_.end() ? nullptr : at->second.to;
}

Mat<float> OpCall::tokens_out(const std::string& output) {
  const auto at = outputs_.find(output);
  if (at == outputs_.end()) return {};
  return {data_out(output), rows(), at->second.shape.count() / (dim("B") * dim("T"))};
}

std::vector<const float*> OpCall::each(const std::string& input) const {
  std::vector<const float*> p;
  if (const float* x = data(input))
    for (size_t s = 0; s < dim("B"); ++s) p.push_back(x + s * (shape(input).count() / dim("B")));
  return p;
}

std::vector<float*> OpCall::each_out(const std::string& output) {
  std::vector<float*> p;
  if (float* x = data_out(output))
    for (size_t s = 0; s < dim("B"); ++s) p.push_back(x + s * (outputs_.at(output).shape.count() / dim("B")));
  return p;
}

void OpCall::run(Par par) {
  par_ = par;
  for (auto& [name, out] : outputs_) {
    if (out.to)
      std::fill_n(out.to, out.shape.count(), 0.0f);
    else
      out.own = Tensor(DType::kF32, out.shape), out.to = out.own.as<float>().data();
  }
  op_->run(*this);
  if (!padding_) return;
  // From the last sequence on, whose rows move furthest: nothing is overwritten before it has moved.
  const size_t T = dim("T");
  for (auto& [name, out] : outputs_) {
    if (!out.tokens) continue;
    float* const x = out.to;
    const size_t width = out.shape.count() / (dim("B") * T);
    for (size_t s = dim("B"); s-- > 0;) {
      const size_t n = offsets_[s + 1] - offsets_[s];
      std::memmove(x + s * T * width, x + offsets_[s] * width, n * width * sizeof(float));
      std::fill_n(x + (s * T + n) * width, (T - n) * width, 0.0f);
    }
  }
}

std::vector<NamedTensor> OpCall::results() const {
  std::vector<NamedTensor> all;
  for (const auto& [name, out] : outputs_) all.push_back({name, {out.to, DType::kF32, out.shape}});
  return all;
}

std::string op_help(const CallableOp& op) {
  std::string text = fmt::format("\n{}: {}\n", op.name, op.summary);
  const auto line = [&](const std::string& name, const std::string& shape, const std::string& help) {
    text += fmt::format("  {:<10} {:<36} {}\n", name, shape, help);
  };
  text += "\nTensors of --in (F32 where nothing else is said):\n";
  for (const OpInput& in : op.inputs) line(in.name, input_shape(in), input_help(in));
  text += "\nTensors of --out:\n";
  for (const OpOutput& o : op.outputs) line(o.name, output_shape(o), output_help(o));
  text += "\nForms:\n";
  for (const OpForm& f : op.forms) line(f.name, "", form_help(op, f));
  if (!op.settings.empty()) text += "\nSettings (--set name=value):\n";
  for (const OpSetting& s : op.settings) line(s.name, range_text(s), setting_help(s));
  return text;
}

std::string op_markdown(const CallableOp& op) {
  std::string text = fmt::format("\n### braid op {}\n\n{}\n\n| | | |\n|---|---|---|\n", op.name, op.summary);
  const auto line = [&](const char* kind, const std::string& name, std::string shape,
                        const std::string& help) {
    for (size_t at = 0; (at = shape.find('|', at)) != std::string::npos; at += 2) shape.insert(at, "\\");
    text += fmt::format("| {} `{}` | {} | {} |\n", kind, name, shape, help);
  };
  for (const OpInput& in : op.inputs) line("in", in.name, input_shape(in), input_help(in));
  for (const OpOutput& o : op.outputs) line("out", o.name, output_shape(o), output_help(o));
  for (const OpForm& f : op.forms) line("form", f.name, "", form_help(op, f));
  for (const OpSetting& s : op.settings) line("set", s.name, range_text(s), setting_help(s));
  return text;
}

}  // namespace braid
