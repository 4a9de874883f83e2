// The terminal, lent to the command of --run: only one group of processes may read from it and gets
// its Ctrl-C, and the command is a group of its own.
#pragma once

#include <sys/types.h>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class LentTerminal {
 public:
    LentTerminal();
    ~LentTerminal() { take_back(); }
    LentTerminal(const LentTerminal&) = delete;
    LentTerminal& operator=(const LentTerminal&) = delete;

    bool is_there() const { return tty_.get() >= 0; }
    // Does nothing where it is not ours to give.
    void give_to(pid_t group);
    void take_back();

 private:
    void set_foreground(pid_t group);

    OwnedFd tty_;
    bool lent_ = false;
};

}  // namespace gpunbd::server
