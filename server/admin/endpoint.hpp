// The admin endpoint: shows the state of a server and changes it, by HTTP on Unix sockets and TCP.
// It has its own thread, so that no client of an export waits for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/admin/http/guard.hpp"
#include "server/admin/http/message.hpp"
#include "server/admin/model/admin_backend.hpp"
#include "server/admin/model/event_log.hpp"
#include "server/net/transport/tls_context.hpp"

namespace gpunbd::server::admin {

class Endpoint {
 public:
    // The server outlives it.
    Endpoint(AdminBackend& server, std::shared_ptr<const EventLog> events,
             const Limits& limits = {});
    // Closes all connections. A client that waits for an outcome gets the response that the server
    // is ending. stop() waits only for the endpoint's own thread.
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    // Before start(). Each throws AddressError or std::runtime_error if it cannot listen.
    // `quiet`: the log says that it listens there only at level debug.
    void open_unix(const std::string& path, bool quiet = false);
    // For kept contents only, and only for this user and root.
    void open_kept(const std::string& path);
    // `tls`: null: without TLS.
    void open_tcp(const config::TcpListener& address, EndpointPolicy policy,
                  std::shared_ptr<const TlsContext> tls);
    // For later connections. Any thread.
    void renew_tls(std::shared_ptr<const TlsContext> tls);
    bool listens() const;
    void start();
    // From now on, the reply to clients that still wait at the end names the successor.
    void set_replaced();

 private:
    class Running;
    const std::unique_ptr<Running> running_;
};

}  // namespace gpunbd::server::admin
