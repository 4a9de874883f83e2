// One worker's channels, one to each device it has met.
#pragma once

#include <memory>
#include <vector>

#include "storage/devices/device.hpp"

namespace gpunbd::storage {

// Work of many small steps, of which each poll of the channels does some, so that other requests of
// the worker get theirs in between.
class Deferred {
 public:
    // Called from Channels::poll(), once for each Channels::defer().
    virtual void resume() = 0;

 protected:
    virtual ~Deferred() = default;

 private:
    friend class Channels;
    Deferred* next_ = nullptr;
};

class Channels {
 public:
    explicit Channels(const ChannelOptions& options) : options_(options) {}

    // Opens the channel if need be; throws as Device::open_channel() does. Once for each device
    // before a transfer touches it.
    void open(Device& device);
    Channel& to(const Device& device) { return *by_number_[device.number()]; }

    void poll() {
        for (Channel* channel : open_) channel->poll();
        if (deferred_ != nullptr) resume_deferred();
    }
    // Not owned; has it resumed by the next poll, and must then still be there.
    void defer(Deferred& work) {
        work.next_ = deferred_;
        deferred_ = &work;
    }
    bool busy() const {
        if (deferred_ != nullptr) return true;
        for (const Channel* channel : open_) {
            if (channel->busy()) return true;
        }
        return false;
    }
    // Does any transfer wait for staging memory?
    bool waited_for() const {
        for (Channel* channel : open_) {
            if (channel->read_staging().waited_for() || channel->write_staging().waited_for()) {
                return true;
            }
        }
        return false;
    }

 private:
    void resume_deferred();

    ChannelOptions options_;
    std::vector<std::unique_ptr<Channel>> by_number_;
    std::vector<Channel*> open_;
    Deferred* deferred_ = nullptr;
};

}  // namespace gpunbd::storage
