// `co_await sleep_for(...)`: a pause of a coroutine.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/base/awaited.hpp"

namespace gpunbd::server {

// `timer` is one of `io`, and has no other wait. If it is cancelled or destroyed, the coroutine
// waits until its owner destroys it.
inline Awaited<> sleep_for(boost::asio::io_context& io, boost::asio::steady_timer& timer,
                           boost::asio::steady_timer::duration duration) {
    Awaited<> passed(io);
    timer.expires_after(duration);
    timer.async_wait([give = passed.giver()](boost::system::error_code error) {
        if (!error) give();
    });
    return passed;
}

}  // namespace gpunbd::server
