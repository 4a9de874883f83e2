// One worker's channels, one to each device it has met, and where its requests for pages come
// back.
#pragma once

#include <boost/intrusive/list.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "storage/devices/device.hpp"
#include "storage/pages/page_returns.hpp"

namespace gpunbd::storage {

// Work of many small steps, of which each poll of the channels does one, so that other requests of
// the worker get theirs in between.
class Deferred {
 public:
    // Called from Channels::poll(), once for each Channels::defer().
    virtual void resume() = 0;

 protected:
    virtual ~Deferred() = default;

 private:
    friend class Channels;
    friend class DeferredOfClient;
    using Place = boost::intrusive::list_member_hook<
        boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
    Place place_;
};

// What one client has deferred, in order. Clients take turns, however much each of them has.
class DeferredOfClient {
 private:
    friend class Channels;
    using Place = boost::intrusive::list_member_hook<
        boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
    Place place_;
    boost::intrusive::list<
        Deferred, boost::intrusive::member_hook<Deferred, Deferred::Place, &Deferred::place_>,
        boost::intrusive::constant_time_size<false>>
        works_;
};

class Channels {
 public:
    // `wake`: has its worker poll soon, from any thread, and does not throw. Empty: it polls all
    // the time.
    explicit Channels(const ChannelOptions& options, std::function<void()> wake = {})
        : options_(options), page_returns_(std::move(wake)) {}

    // Opens the channel if need be; throws as Device::open_channel() does. Once for each device
    // before a transfer touches it.
    void open(Device& device);
    Channel& to(const Device& device) { return *by_number_[device.number()]; }

    PageReturns& page_returns() { return page_returns_; }

    void poll() {
        if (page_returns_.any()) page_returns_.deliver();
        for (Channel* channel : open_) channel->poll();
        if (!deferred_.empty()) resume_one();
    }
    // Neither is owned. It is resumed by a later poll; gone by then, it is not.
    void defer(DeferredOfClient& client, Deferred& work) {
        client.works_.push_back(work);
        if (!client.place_.is_linked()) deferred_.push_back(client);
    }
    bool busy() const {
        if (!deferred_.empty() || page_returns_.any()) return true;
        for (const Channel* channel : open_) {
            if (channel->busy()) return true;
        }
        return false;
    }
    // Any thread: each device with its channel, to be looked at while these live. What open() may
    // wait for allocates nothing.
    using Seen = std::vector<std::pair<const Device*, const Channel*>>;
    Seen seen() const;
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
    void resume_one();

    ChannelOptions options_;
    PageReturns page_returns_;
    std::vector<std::unique_ptr<Channel>> by_number_;
    std::vector<Channel*> open_;
    mutable std::mutex mutex_;
    Seen seen_;  // by others
    boost::intrusive::list<DeferredOfClient,
                           boost::intrusive::member_hook<DeferredOfClient, DeferredOfClient::Place,
                                                         &DeferredOfClient::place_>,
                           boost::intrusive::constant_time_size<false>>
        deferred_;  // clients, the next one first
};

}  // namespace gpunbd::storage
