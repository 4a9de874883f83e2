// Handles the requests of the API, which openapi.yaml describes.
#pragma once

#include <cstddef>
#include <string_view>

#include "server/admin/http/message.hpp"
#include "server/admin/model/admin_backend.hpp"
#include "server/admin/model/event_log.hpp"
#include "server/admin/model/history.hpp"

namespace gpunbd::server::admin {

class Api {
 public:
    static constexpr std::size_t max_runs = 10'000;  // in one response about pages

    // The arguments outlive it.
    Api(AdminBackend& server, const History& history, const EventLog& events)
        : server_(server), history_(history), events_(events) {}

    // The caller has checked that the client is allowed to send this request.
    Response respond(const Request& request) const;
    // The response for the outcome of Response::operation.
    static Response response_to(const Outcome& outcome);

 private:
    struct Route;
    static const Route* find_route(std::string_view path);
    Status status_with_last_second() const;

    Response status(const Request& request) const;
    Response exports(const Request& request) const;
    Response devices(const Request& request) const;
    Response connections(const Request& request) const;
    Response events(const Request& request) const;
    Response map(const Request& request) const;
    Response pages(const Request& request) const;
    Response history(const Request& request) const;
    Response trends(const Request& request) const;
    Response access(const Request& request) const;
    Response stream(const Request& request) const;
    Response metrics(const Request& request) const;
    Response end_connection(const Request& request) const;
    Response set_log_level(const Request& request) const;
    Response set_rates(const Request& request) const;
    Response set_read_only(const Request& request) const;
    Response create_export(const Request& request) const;
    Response remove_export(const Request& request) const;
    Response resize_export(const Request& request) const;
    Response flush_export(const Request& request) const;
    Response evict_export(const Request& request) const;
    Response rename_export(const Request& request) const;
    Response snapshot_export(const Request& request) const;
    Response clone_export(const Request& request) const;
    Response save_export(const Request& request) const;
    Response restore_export(const Request& request) const;
    Response create_clone(const Request& request, bool read_only) const;
    Response perform(ExportRequest request) const;
    Response list_kept(const Request& request) const;
    Response drop_kept(const Request& request) const;
    Response reclaim(const Request& request) const;
    Response end_reclaim(const Request& request) const;

    AdminBackend& server_;
    const History& history_;
    const EventLog& events_;
};

}  // namespace gpunbd::server::admin
