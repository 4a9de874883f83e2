// What services request of the server as a whole, on its thread.
#pragma once

namespace gpunbd::server {

class ServerControl {
 public:
    // Termination was requested: the server drains, once the machine does not use its exports.
    virtual void end() = 0;
    // It was requested again.
    virtual void end_now() = 0;
    // This machine does not swap to the server any more.
    virtual void end_after_swapoff() = 0;
    virtual void drain() = 0;
    // Whether the end waits for something other than a connection.
    virtual bool end_is_held() const = 0;
    virtual void reload() = 0;
    virtual void log_trace() = 0;
    virtual void child_exited() = 0;

    // The steps of an upgrade. In the predecessor:
    virtual void hand_over() = 0;
    virtual void yield() = 0;        // the successor is about to serve
    virtual void handed_over() = 0;  // it serves
    virtual void resume() = 0;       // it does not; serving continues here
    // In the successor, once it serves. Nothing may change the contents before.
    virtual void taken_over() = 0;

 protected:
    ~ServerControl() = default;
};

}  // namespace gpunbd::server
