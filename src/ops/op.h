// Ops by name on named tensors, for `braid op` and for other languages: one entry per op, in a file of its
// own. An entry names its tensors with their shapes in symbols, its settings and its forms; checking, packing
// and the shapes of results follow from that. To add an op: write its entry, declare it below, add it to
// all_callable_ops().
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "io/safetensors.h"

namespace braid {

class OpCall;

enum class OpNeed : uint8_t {
  kRequired,
  kOptional,
  kCotangent,          // required for a backward pass, else not read
  kOptionalCotangent,  // read for a backward pass only
};

// Shapes are symbols with spaces between, "B T Hk dk"; alternatives with " | " between; "W-1" is one less
// than W. A tensor that begins with "B T" holds tokens.
struct OpInput {
  std::string name, shape;
  OpNeed need;
  std::string help;
  DType dtype = DType::kF32;
};

struct OpOutput {
  std::string name;
  std::string shape;  // "like g": as that input, and only if it is given
  std::string help;
  bool gradient = false;  // of a backward pass only
};

struct OpSetting {
  enum class Kind : uint8_t { kNumber, kWhole, kChoice };
  std::string name;
  Kind kind;
  std::string value;  // the default; empty: the op finds one
  double low, high;   // of numbers
  std::vector<std::string> choices;
  std::string help;
};
OpSetting number_setting(std::string name, std::string value, double low, double high, std::string help);
OpSetting whole_setting(std::string name, std::string value, double low, double high, std::string help);
OpSetting choice_setting(std::string name, std::string value, std::vector<std::string> choices,
                         std::string help);

struct OpForm {
  std::string name, help;
  bool backward;
};

struct CallableOp {
  std::string name, summary;
  std::vector<OpInput> inputs;
  std::vector<OpOutput> outputs;
  std::vector<OpSetting> settings;
  std::vector<OpForm> forms;                                             // the first is the default
  void (*validate)(const OpCall& call, std::vector<Problem>& problems);  // extents and settings; or null
  void (*run)(OpCall& call);
};

const CallableOp& fast_weight_op();
const CallableOp& attention_op();
const CallableOp& delta_former_op();
const CallableOp& selective_scan_op();
const CallableOp& short_conv_op();
std::span<const CallableOp* const> all_callable_ops();

const CallableOp* find_callable_op(std::string_view name);  // null if there is none
Error no_such_op(std::string_view name);

OpInput lengths_input();  // for every op on sequences

struct OpOptions {
  std::vector<std::string> settings = {};  // "name=value"
  std::string form = {};                   // empty: the op's first
  bool backward = false;                   // also the gradients
  std::string dashes = {};                 // before the names of these in messages: "--" on a command line
};

// One use of an op: named tensors in, checked; named results out. Kernels see packed tokens: the rows of all
// sequences end to end, without padding.
class OpCall {
 public:
  // Everything wrong with the options is reported at once.
  static Result<OpCall> make(const CallableOp& op, const OpOptions& options);
  // So is everything wrong with the tensors, which must outlive the call; `where` they are from is for
  // messages.
  Status read(std::span<const NamedTensor> tensors, const std::string& where);
  Status read(const SafeTensors& file, const std::string& file_name);
  std::vector<NamedTensor> results()
      const;  // names and shapes after read, numbers after run; valid as long as this is
  // A result goes to the caller's memory, as large as results() says, instead of to memory of this. Before
  // run.
  void place(const std::string& result, float* to) { outputs_.at(result).to = to; }
  void run(Par par);

  // As messages call them.
  std::string setting(const std::string& name) const {
    return (dashes_.empty() ? "setting " : dashes_ + "set ") + name;
  }
  std::string option(const std::string& name) const { return dashes_ + name; }
  const std::string& form() const { return form_; }
  bool backward() const { return backward_; }
  Par par() const { return par_; }
  size_t dim(const std::string& symbol) const { return static_cast<size_t>(dims_.at(symbol)); }
  const Shape& shape(const std::string& input) const { return inputs_.at(input).view.shape; }
  bool has(const std::string& input) const { return inputs_.contains(input); }
  bool is_set(const std::string& setting) const { return !settings_.at(setting).empty(); }
  double number(const std::string& setting) const;
  const std::string& word(const std::string& setting) const { return settings_.at(setting); }

  std::span<const uint32_t> offsets() const { return offsets_; }  // of the packed sequences
  size_t rows() const { return offsets_.back(); }                 // of all of them

  // Which implementation ran, of ops where that depends on the shape.
  void ran_by(std::string_view impl) { impl_ = impl; }
  const std::string& impl() const { return impl_; }

  // Tokens are [rows(), the rest]; what is not given has no data.
  Mat<const float> tokens(const std::string& input) const;
  const float* data(const std::string& input) const;
  Mat<float> tokens_out(const std::string& output);
  float* data_out(const std::string& output);                      // zeros at first
  std::vector<const float*> each(const std::string& input) const;  // one pointer per sequence into [B, ...]
  std::vector<float*> each_out(const std::string& output);

 private:
  OpCall(const CallableOp& op, const OpOptions& o) : op_(&op), backward_(o.backward), dashes_(o.dashes) {}
  void read_settings(const std::vector<std::string>& given, std::vector<Problem>& problems);
  void read_form(const std::string& form, std::vector<Problem>& problems);
  void read_input(const OpInput& in, const View& view, std::vector<Problem>& problems);
  void read_lengths(std::vector<Problem>& problems);
  Status make_outputs();
  void pack_inputs();

  const CallableOp* op_;
  std::string form_;
  bool backward_ = false;
  std::string impl_, dashes_;
  Par par_;
  std::map<std::string, int64_t> dims_;
  std::map<std::string, std::string> settings_;
  struct Input {
    View view;
    bool tokens;    // [B, T, ...]
    Tensor packed;  // without the padding, if there is any
  };
  struct Output {
    Shape shape;
    bool tokens;          // packed while the op runs
    float* to = nullptr;  // the caller's, or of `own`
    Tensor own = {};
  };
  std::map<std::string, Input> inputs_;
  std::map<std::string, Output> outputs_;
  std::vector<uint32_t> offsets_;
  bool padding_ = false;  // some sequence is shorter than T
};

std::string op_help(const CallableOp& op);      // for people
std::string op_markdown(const CallableOp& op);  // for docs/reference/cli.md

}  // namespace braid
