#include "base/interrupt.h"

#include <signal.h>

#include <csignal>
#include <initializer_list>

namespace braid {
namespace {

volatile std::sig_atomic_t asked = 0;

void on_signal(int) { asked = 1; }

void set(int signal, void (*handler)(int), int flags = 0) {
  struct sigaction before {};
  if (signal == SIGHUP && sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_interrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    set(signal, on_signal, SA_RESETHAND);  // the second one gets the default action
  set(SIGPIPE, on_signal);                 // comes with every line; writing fails with an error instead
}

bool interrupted() { return asked != 0; }

void release_interrupts() {
  asked = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) set(signal, SIG_DFL);
}

}  // namespace braid
