// The terminal that the server was started from. If it is closed, no user can stop the server.
#pragma once

namespace gpunbd::server {

class ControllingTerminal {
 public:
    ControllingTerminal() : was_open_(is_open()) {}
    // The terminal was open when the server started and has been closed since.
    bool gone() const { return was_open_ && !is_open(); }

 private:
    static bool is_open();

    const bool was_open_;
};

}  // namespace gpunbd::server
