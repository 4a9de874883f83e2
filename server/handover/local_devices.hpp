// The block devices that a server itself makes, as an upgrade sees them.
#pragma once

namespace gpunbd::server {

class LocalDevices {
 public:
    // Requests in flight end, later ones wait in the kernel.
    virtual void pause_requests() = 0;
    virtual bool paused() const = 0;  // no request is in flight
    // After pause_requests(): serves the requests that wait.
    virtual void resume_requests() = 0;

 protected:
    ~LocalDevices() = default;
};

}  // namespace gpunbd::server
