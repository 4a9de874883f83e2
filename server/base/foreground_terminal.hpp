// Makes the command of --run the foreground process group of the terminal. Only the foreground
// group can read from the terminal and gets SIGINT by Ctrl-C.
#pragma once

#include <sys/types.h>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class ForegroundTerminal {
 public:
    ForegroundTerminal();
    ~ForegroundTerminal() { take_back(); }
    ForegroundTerminal(const ForegroundTerminal&) = delete;
    ForegroundTerminal& operator=(const ForegroundTerminal&) = delete;

    bool is_open() const { return tty_.get() >= 0; }
    // Does nothing if this process is not in the foreground.
    void give_to(pid_t group);
    void take_back();

 private:
    void set_foreground(pid_t group);

    OwnedFd tty_;
    bool lent_ = false;
};

}  // namespace gpunbd::server
