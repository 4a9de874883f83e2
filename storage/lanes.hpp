// One worker's lanes, one to each device it has met.
#pragma once

#include <memory>
#include <vector>

#include "storage/device.hpp"

namespace gpunbd::storage {

// Work of many small steps, of which each turn of the lanes does some, so that other requests of
// the worker get theirs in between.
class Deferred {
 public:
    // Called from Lanes::turn(), once for each Lanes::defer().
    virtual void resume() = 0;

 protected:
    virtual ~Deferred() = default;

 private:
    friend class Lanes;
    Deferred* next_ = nullptr;
};

class Lanes {
 public:
    explicit Lanes(const LaneOptions& options) : options_(options) {}

    // Opens the lane if need be; throws as Device::open_lane() does. Once for each device before a
    // transfer touches it.
    void open(Device& device);
    Lane& to(const Device& device) { return *by_number_[device.number()]; }

    void turn() {
        for (Lane* lane : open_) lane->turn();
        if (deferred_ != nullptr) resume_deferred();
    }
    // Not owned; has it resumed by the next turn, and must then still be there.
    void defer(Deferred& work) {
        work.next_ = deferred_;
        deferred_ = &work;
    }
    bool busy() const {
        if (deferred_ != nullptr) return true;
        for (const Lane* lane : open_) {
            if (lane->busy()) return true;
        }
        return false;
    }
    // Does any transfer wait for staging memory?
    bool waited_for() const {
        for (Lane* lane : open_) {
            if (lane->read_staging().waited_for() || lane->write_staging().waited_for()) {
                return true;
            }
        }
        return false;
    }

 private:
    void resume_deferred();

    LaneOptions options_;
    std::vector<std::unique_ptr<Lane>> by_number_;
    std::vector<Lane*> open_;
    Deferred* deferred_ = nullptr;
};

}  // namespace gpunbd::storage
