#include "cli/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <iostream>

namespace braid {

struct LineEditor::Terminal {
  EditLine* edit = nullptr;
  History* history = nullptr;
  const char* prompt = "";

  Terminal() {
    // libedit reads characters of the locale's encoding.
    const char* locale = std::setlocale(LC_CTYPE, "");
    if (!locale || std::string(locale) == "C" || std::string(locale) == "POSIX")
      std::setlocale(LC_CTYPE, "C.UTF-8");
    edit = el_init("braid", stdin, stdout, stderr);
    history = history_init();
    if (!edit || !history) return;
    HistEvent event;
    constexpr int kLines = 1000;
    ::history(history, &event, H_SETSIZE, kLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(edit, EL_CLIENTDATA, this);
    el_set(
        edit, EL_PROMPT, +[](EditLine* e) -> char* {
          Terminal* self = nullptr;
          el_get(e, EL_CLIENTDATA, &self);
          return const_cast<char*>(self->prompt);
        });
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_HIST, ::history, history);
    // Ctrl-C arrives as a character while a line is edited: no signal, which would end the conversation.
    el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
    el_set(
        edit, EL_ADDFN, "braid-clear", "Clears the line", +[](EditLine* e, int) -> unsigned char {
          const LineInfo* line = el_line(e);
          el_cursor(e, static_cast<int>(line->lastchar - line->cursor));
          line = el_line(e);
          el_deletestr(e, static_cast<int>(line->lastchar - line->buffer));
          return CC_REFRESH;
        });
    el_set(edit, EL_BIND, "^C", "braid-clear", nullptr);
    el_source(edit, nullptr);  // the user's ~/.editrc
  }
  ~Terminal() {
    if (history) history_end(history);
    if (edit) el_end(edit);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
};

LineEditor::LineEditor() {
  if (!isatty(STDIN_FILENO)) return;
  terminal_ = std::make_unique<Terminal>();
  if (!terminal_->edit || !terminal_->history) terminal_.reset();
}

LineEditor::~LineEditor() = default;

bool LineEditor::read(const char* prompt, std::string& line) {
  if (!terminal_) return static_cast<bool>(std::getline(std::cin, line));
  terminal_->prompt = prompt;
  int length = 0;
  const char* text = el_gets(terminal_->edit, &length);
  if (!text || length <= 0) return false;
  line.assign(text, static_cast<size_t>(length));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) ::history(terminal_->history, &event, H_ENTER, line.c_str());
  return true;
}

}  // namespace braid
