// The channels of one worker, one for each device, and the completions of its page requests.
#pragma once

#include <algorithm>
#include <boost/intrusive/list.hpp>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/page_completions.hpp"

namespace gpunbd::storage {

// Work in many small steps. Each poll of the channels does one step, so that other requests of the
// worker make progress in between.
class DeferredWork {
 public:
    // Called from Channels::poll(), once for each Channels::defer().
    virtual void resume() = 0;

 protected:
    virtual ~DeferredWork() = default;

 private:
    friend class Channels;
    friend class DeferredQueue;
    using Hook = boost::intrusive::list_member_hook<
        boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
    Hook hook_;
};

// The deferred work of one client, in order. Clients take turns, however much work each has.
class DeferredQueue {
 private:
    friend class Channels;
    using Hook = boost::intrusive::list_member_hook<
        boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
    Hook hook_;
    boost::intrusive::list<
        DeferredWork,
        boost::intrusive::member_hook<DeferredWork, DeferredWork::Hook, &DeferredWork::hook_>,
        boost::intrusive::constant_time_size<false>>
        works_;
};

class Channels {
 public:
    // `wake` makes the worker poll soon. It may be called from any thread and does not throw.
    // Empty: the worker polls continuously.
    explicit Channels(const ChannelOptions& options, std::function<void()> wake = {})
        : options_(options), page_completions_(std::move(wake)) {}

    // Opens the channel to the device if necessary: ahead of need, since it takes long on a GPU.
    // Throws what Device::open_channel() throws.
    void open(Device& device);
    // The channel to the device of a page that a transfer has found. It is opened now if the device
    // was added to the volume since open(). Null: that failed, and the log says why.
    Channel* find(Device& device) noexcept {
        if (device.number() < by_number_.size()) [[likely]] {
            Channel* const channel = by_number_[device.number()].get();
            if (channel != nullptr) [[likely]]
                return channel;
        }
        return open_late(device);
    }
    // The channel, which is open.
    Channel& to(const Device& device) {
        GPUNBD_ASSERT(device.number() < by_number_.size() && by_number_[device.number()] != nullptr,
                      "the channel of a copy is opened before the copy is made");
        return *by_number_[device.number()];
    }

    PageCompletions& page_completions() { return page_completions_; }

    // The time of the worker's round, which costs less than reading the clock. The worker sets it.
    TraceClock::time_point now() const { return now_; }
    void set_now(TraceClock::time_point now) { now_ = now; }
    // Of the last poll. What a poll finds was still in progress then.
    TraceClock::time_point polled() const { return polled_; }

    void poll() {
        if (page_completions_.any()) page_completions_.deliver();
        // A completion may open a channel.
        for (std::size_t i = 0; i != open_.size(); ++i) open_[i]->poll();
        if (!deferred_.empty()) resume_one();
        polled_ = now_;
    }
    // A later poll resumes the work, unless it has been destroyed. Neither argument is owned.
    void defer(DeferredQueue& client, DeferredWork& work) {
        GPUNBD_ASSERT(!work.hook_.is_linked(), "work is deferred once until it is resumed");
        client.works_.push_back(work);
        if (!client.hook_.is_linked()) deferred_.push_back(client);
    }
    bool busy() const {
        if (!deferred_.empty() || page_completions_.any()) return true;
        for (const Channel* channel : open_) {
            if (channel->busy()) return true;
        }
        return false;
    }
    // Whether nothing is left to do until other threads of this machine have run.
    bool waits_for_threads() const {
        if (!deferred_.empty() || page_completions_.any()) return false;
        return std::ranges::any_of(open_, &Channel::waits_for_threads);
    }
    // The devices and their channels, for any thread. open() waits for this lock, so code that
    // holds it does not allocate.
    using Snapshot = std::vector<std::pair<const Device*, const Channel*>>;
    Snapshot snapshot() const;
    // Whether any transfer waits for staging memory.
    bool waited_for() const {
        for (Channel* channel : open_) {
            if (channel->read_staging().waited_for() || channel->write_staging().waited_for()) {
                return true;
            }
        }
        return false;
    }

 private:
    void resume_one();
    Channel* open_late(Device& device) noexcept;

    ChannelOptions options_;
    PageCompletions page_completions_;
    TraceClock::time_point now_;
    TraceClock::time_point polled_;
    std::vector<std::unique_ptr<Channel>> by_number_;
    std::vector<Channel*> open_;
    bool has_failed_ = false;  // open_late(): logged once
    mutable Mutex mutex_;
    Snapshot snapshot_ GUARDED_BY(mutex_);  // what snapshot() copies
    boost::intrusive::list<
        DeferredQueue,
        boost::intrusive::member_hook<DeferredQueue, DeferredQueue::Hook, &DeferredQueue::hook_>,
        boost::intrusive::constant_time_size<false>>
        deferred_;  // clients, the next one first
};

}  // namespace gpunbd::storage
