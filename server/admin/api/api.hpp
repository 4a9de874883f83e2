// What can be asked: each path with its method, as openapi.yaml describes them.
#pragma once

#include <cstddef>
#include <string_view>

#include "server/admin/events/event_log.hpp"
#include "server/admin/history/history.hpp"
#include "server/admin/http/message.hpp"
#include "server/admin/observed_server.hpp"

namespace gpunbd::server::admin {

class Api {
 public:
    static constexpr std::size_t max_runs = 10'000;  // of one answer about pages

    // They outlive it.
    Api(ObservedServer& server, const History& history, const EventLog& events)
        : server_(server), history_(history), events_(events) {}

    // Who asks has been let in.
    Answer answer(const Request& request) const;

 private:
    struct Route;
    static const Route* find_route(std::string_view path);

    Answer status(const Request& request) const;
    Answer exports(const Request& request) const;
    Answer devices(const Request& request) const;
    Answer connections(const Request& request) const;
    Answer events(const Request& request) const;
    Answer map(const Request& request) const;
    Answer pages(const Request& request) const;
    Answer history(const Request& request) const;
    Answer stream(const Request& request) const;
    Answer metrics(const Request& request) const;
    Answer end_connection(const Request& request) const;
    Answer set_log_level(const Request& request) const;
    Answer set_rates(const Request& request) const;
    Answer set_read_only(const Request& request) const;

    ObservedServer& server_;
    const History& history_;
    const EventLog& events_;
};

}  // namespace gpunbd::server::admin
