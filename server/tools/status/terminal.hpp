// The terminal during `gpunbd top`: alternate screen, hidden cursor, unbuffered input without echo.
// The previous state is restored at the end, and while the process is stopped.
#pragma once

#include <termios.h>

#include <string>
#include <vector>

#include "server/tools/status/canvas.hpp"

namespace gpunbd::status {

class Terminal {
 public:
    // True if standard output is a terminal that supports escape sequences.
    static bool exists();

    Terminal();
    ~Terminal();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    void enter();
    void leave();
    // False after standard input has ended.
    bool has_keys() const { return has_keys_; }
    PageSize size() const;
    void show(const std::vector<std::string>& lines);

 private:
    termios modes_{};  // the original modes
    const bool has_keys_;
    bool entered_ = false;
};

}  // namespace gpunbd::status
