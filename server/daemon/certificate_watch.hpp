// Logs that a file of TLS expires soon, or has expired, every day and when it expires.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <vector>

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/net/credentials/validity.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

class CertificateWatch final : public Service {
 public:
    explicit CertificateWatch(ServerContext& context) : context_(context), timer_(context.io) {}

    void open() override;
    void start() override { check_later(); }
    Commit reload(const config::Options& next, Problems& problems) override;
    void resume() override { check_later(); }
    void stop() override { timer_.cancel(); }

    // Of the files as they were loaded. Any thread.
    std::vector<Validity> validities() const;

 private:
    void check(std::vector<Validity> loaded);
    void check_later();

    ServerContext& context_;
    boost::asio::steady_timer timer_;
    mutable Mutex mutex_;
    std::vector<Validity> validities_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::server
