// Process 1 of a container adopts the processes whose parents have ended, and has to reap them.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <set>

#include "server/daemon/poll.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class AdoptedChildren final : public Service {
 public:
    static constexpr std::chrono::seconds interval{2};  // between two checks

    explicit AdoptedChildren(boost::asio::io_context& io);  // which must outlive this object

    void start() override { poll_.start(); }
    void resume() override { poll_.resume(); }
    // Reaps the children that had ended before the last check already. Other parts of this process,
    // and the libraries of drivers, wait for their own children, so that these are gone by then.
    void check();

 private:
    std::set<pid_t> ended_;  // at the last check
    Poll poll_;
};

}  // namespace gpunbd::server
