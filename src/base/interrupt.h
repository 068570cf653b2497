// A wish to end as a question: long loops ask `interrupted()` at points where they can save.
#pragma once

namespace braid {

// SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal was closed; not under nohup); a second one ends the
// program at once. And SIGPIPE: the reader of stdout has ended.
void catch_interrupts();
bool interrupted();
void release_interrupts();  // forgets one that was caught; the next ends the program

}  // namespace braid
