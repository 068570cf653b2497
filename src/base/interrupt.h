// Ctrl-C as a question: long loops ask `interrupted()` at points where they can save. A second Ctrl-C ends at
// once.
#pragma once

namespace braid {

void catch_interrupts();  // SIGINT and SIGTERM
bool interrupted();
void release_interrupts();  // forgets one that was caught; the next ends the program

}  // namespace braid
