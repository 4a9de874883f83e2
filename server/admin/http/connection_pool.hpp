// The connections of one listener of the admin endpoint. No client may have all of them, and the
// connection that has been idle longest is closed for a new one. So neither silent clients nor
// clients that do not read their responses lock others out.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "server/admin/http/connection.hpp"
#include "server/admin/http/limits.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server::admin {

class ConnectionPool {
 public:
    explicit ConnectionPool(const Limits& limits) : limits_(limits) {}

    // For a new connection; may close another one. Returns false if there is no room.
    bool make_room(const std::string& client);
    void add(Connection& connection) {
        GPUNBD_ASSERT(!connections_.contains(&connection), "a connection is added once");
        connections_.insert(&connection);
    }
    // Returns false if no more streams are allowed.
    bool add_stream(Connection& connection);
    void remove_stream(Connection& connection) noexcept { streams_.erase(&connection); }
    void remove(Connection& connection) noexcept { connections_.erase(&connection); }

    const std::set<Connection*>& connections() const { return connections_; }
    const std::set<Connection*>& streams() const { return streams_; }

 private:
    bool close_oldest(const std::string& client);

    const Limits limits_;
    std::set<Connection*> connections_;
    std::set<Connection*> streams_;  // a subset of connections_
};

}  // namespace gpunbd::server::admin
