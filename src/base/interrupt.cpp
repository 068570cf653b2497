#include "base/interrupt.h"

#include <signal.h>

#include <csignal>

namespace braid {
namespace {

volatile std::sig_atomic_t asked = 0;

void on_signal(int) { asked = 1; }

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND;  // the second signal gets the default action
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return asked != 0; }

void release_interrupts() {
  asked = 0;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace braid
