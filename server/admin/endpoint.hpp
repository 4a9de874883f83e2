// The admin endpoint: tells of a server and steers it, by HTTP on a Unix socket and TCP, on a
// thread of its own that no client of an export waits for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/admin/events/event_log.hpp"
#include "server/admin/http/guard.hpp"
#include "server/admin/http/limits.hpp"
#include "server/admin/observed_server.hpp"
#include "server/tls/tls_context.hpp"

namespace gpunbd::server::admin {

class Endpoint {
 public:
    // The server outlives it.
    Endpoint(ObservedServer& server, std::shared_ptr<const EventLog> events,
             const Limits& limits = {});
    // Clients are cut off.
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    // Before start(). Each throws AddressError, or std::runtime_error: it cannot be had.
    // `known`: who asks knows where it is, and the log need not say so.
    void open_unix(const std::string& path, bool known = false);
    // `tls`: null, or what to do TLS with.
    void open_tcp(const config::TcpListener& address, Door door,
                  std::shared_ptr<const TlsContext> tls);
    // For who comes from now on; any time, any thread.
    void renew_tls(std::shared_ptr<const TlsContext> tls);
    bool listens() const;
    void start();

 private:
    class Running;
    const std::unique_ptr<Running> running_;
};

}  // namespace gpunbd::server::admin
