// What the walk does: the program's own list of options crossed with bad values, bad files of every format it
// reads, limits, and output that cannot be written.
#pragma once

#include <string>
#include <vector>

#include "walk/child.h"

namespace braid::walk {

struct Option {
  std::string name;  // "--top-k", or a word without dashes for what is taken by its place
};
struct VerbOptions {
  std::string verb;
  std::vector<Option> options;
};
// Read from `braid --markdown`.
std::vector<VerbOptions> listed_options(const std::string& markdown);

// Files that are right, made once: a trained model and run folder, tokenizers, and so on.
class Fixtures {
 public:
  // Runs `program`; an error message or "".
  std::string make(const std::string& program, const std::string& source, const std::string& dir);
  std::string operator/(const std::string& name) const { return dir_ + "/" + name; }

 private:
  std::string dir_;
};

// Every verb in a form that ends soon and with 0; several for verbs that do several things.
std::vector<Case> good_cases(const Fixtures& f);

std::vector<Case> option_cases(const std::vector<VerbOptions>& verbs, const Fixtures& f);
std::vector<Case> file_cases(const Fixtures& f);
std::vector<Case> limit_cases(const Fixtures& f);
std::vector<Case> output_cases(const Fixtures& f);
std::vector<Case> kill_cases(const Fixtures& f);

}  // namespace braid::walk
