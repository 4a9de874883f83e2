// The terminal that the server was started from: when it goes, nobody is left to end the server.
#pragma once

namespace gpunbd::server {

class ControllingTerminal {
 public:
    ControllingTerminal() : was_there_(is_there()) {}
    // It was there at the start, and has been closed since.
    bool gone() const { return was_there_ && !is_there(); }

 private:
    static bool is_there();

    const bool was_there_;
};

}  // namespace gpunbd::server
