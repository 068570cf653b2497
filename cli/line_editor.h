// Lines typed at a terminal, with editing and history; elsewhere the lines of standard input.
#pragma once

#include <memory>
#include <string>

namespace braid {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  // False at the end of the input. Ctrl-C clears the line; it does not end the program.
  bool read(const char* prompt, std::string& line);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // none: standard input is no terminal
};

}  // namespace braid
