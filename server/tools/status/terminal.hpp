#pragma once

#include <signal.h>
#include <termios.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/status/canvas.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

// Decodes keys from the bytes of a terminal.
enum class Key { quit, sort, only_one, explain, up, down, page_up, page_down };

class KeyReader {
 public:
    // Returns the keys of complete sequences; ignores unknown ones.
    std::vector<Key> take(std::string_view bytes);

 private:
    std::string pending_;  // the start of an incomplete sequence
};

// The signals of `gpunbd top`. They are read from a descriptor, so that the terminal can be
// restored first.
class Signals {
 public:
    // Throws std::system_error.
    Signals();
    ~Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    int fd() const { return fd_.get(); }
    // The next pending signal, if any.
    std::optional<int> take();
    // Stops this process as SIGTSTP does; returns when it is resumed.
    static void stop();

 private:
    sigset_t before_{};
    const OwnedFd fd_;
};

// The terminal during `gpunbd top`: alternate screen, hidden cursor, unbuffered input without echo.
// The previous state is restored at the end, and while the process is stopped.
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
