// The terminal while `gpunbd top` has it: the other screen, no cursor, keys at once and unseen. All
// of that is taken back at its end, and while the process is stopped.
#pragma once

#include <termios.h>

#include <string>
#include <vector>

#include "server/tools/status/canvas.hpp"

namespace gpunbd::status {

class Terminal {
 public:
    // Is standard output one that obeys the sequences?
    static bool exists();

    Terminal();
    ~Terminal();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    void enter();
    void leave();
    // Standard input has keys for us.
    bool has_keys() const { return has_keys_; }
    PageSize size() const;
    void show(const std::vector<std::string>& lines);

 private:
    termios modes_{};  // as they were
    const bool has_keys_;
    bool entered_ = false;
};

}  // namespace gpunbd::status
