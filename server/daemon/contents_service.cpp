#include "server/daemon/contents_service.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>

#include "config/quote.hpp"
#include "server/daemon/server_context.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t max_waiting_queries = 64;

}  // namespace

Kept list_kept(const RetainedContents& contents) {
    Kept out;
    for (const RetainedContents::Summary& each : contents.summaries()) {
        RetainedStatus& kept = out.contents.emplace_back();
        kept.name = each.name;
        kept.used = each.used;
        kept.state = each.state;
        if (each.instance.empty()) continue;  // its table is unreadable
        kept.size = each.size;
        kept.devices = each.devices;
        kept.made = each.made;
        kept.instance = each.instance;
    }
    return out;
}

Outcome drop_kept(RetainedContents& contents, const std::string& name) {
    if (contents.drop(name) != 0) {
        return Done{fmt::format("Kept contents {} are freed.", config::in_quotes(name))};
    }
    const auto all = contents.summaries();
    const bool there =
        std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
    if (there) {
        return NotDone{fmt::format(
            "export {} uses them; remove the export, or its keep, from the configuration first",
            config::in_quotes(name))};
    }
    return NotDone{.why = "nothing is kept under the name " + config::in_quotes(name),
                   .unknown = true};
}

RetainedQueries::RetainedQueries(ServerContext& context, ExportService& exports)
    : context_(context), exports_(exports) {
    exports.add(*this);
}

void RetainedQueries::answer(const ServerAdminBackend::RetainedQuery& query) {
    if (!context_.retained.contents) {
        return query.completion(
            NotDone{"no supervisor keeps contents for this server; start it by gpunbd keep, or by "
                    "systemd with "
                    "FileDescriptorStoreMax="});
    }
    if (exports_.busy()) {
        if (waiting_.size() < max_waiting_queries) return waiting_.push_back(query);
        return query.completion(NotDone{"exports are being made; try again later"});
    }
    if (!query.drop) return query.completion(list_kept(*context_.retained.contents));
    if (context_.lifecycle.refuses_changes()) {
        return query.completion(context_.lifecycle.refusal());
    }
    const Outcome outcome = drop_kept(*context_.retained.contents, *query.drop);
    if (std::holds_alternative<Done>(outcome) && !exports_.refused().empty()) exports_.remake();
    query.completion(outcome);
}

void RetainedQueries::exports_idle() {
    for (const auto& each : std::exchange(waiting_, {})) answer(each);
}

ContentsService::ContentsService(ServerContext& context, ExportService& exports)
    : context_(context), exports_(exports), timer_(context.io) {
    exports.add(*this);
}

void ContentsService::open() {
    const RetainedState& retained = context_.retained;
    DeviceRegistry& devices = context_.devices;
    if (retained.contents) {
        retained.contents->open_devices(context_.options.exports, devices);
    }
    if (context_.supervision.start_gate) wait_for_start_gate();
    if (!devices.lacks_mapping() || !retained.mappings) return;
    // The mappings of the earlier server occupy the address space: release them first.
    devices.close();
    retained.mappings->undo_now();
}

void ContentsService::start() {
    if (!context_.supervision.predecessor) settle();
}

void ContentsService::wait_for_start_gate() {
    if (!context_.supervision.start_gate->wait()) {
        throw std::runtime_error("this pre-started server is not needed any more");
    }
    context_.supervision.release_messages();
}

void ContentsService::settle() {
    for (const MadeExports::Refused& each : exports_.refused()) spdlog::error("{}", each.why);
    RetainedState& retained = context_.retained;
    if (retained.calibration) {
        const auto& exports = context_.options.exports;
        if (any_keeps(exports)) retained.calibration->keep(context_.devices.calibration_states());
        // Stored mappings hold the memory of all exports. The next server needs the memory of those
        // that are not kept.
        retained.mappings->keep(all_keep(exports) ? context_.devices.mapping_files()
                                                  : std::vector<const OwnedFd*>{});
    }
    release_unused();
}

void ContentsService::release_unused() {
    RetainedContents* const contents = context_.retained.contents.get();
    if (contents == nullptr) return;
    // Called again when the exports have been made, or when the hand-over has failed.
    if (exports_.busy() || context_.lifecycle.refuses_changes()) return;
    std::vector<RetainedContents::Offered> offered;
    const auto exports = context_.exports.snapshot();
    for (const auto& each : *exports) {
        offered.push_back({each->info.name, each->options.keep, each->volume});
    }
    for (const MadeExports::Refused& each : exports_.refused()) {
        offered.push_back({each.name, true, nullptr});
    }
    const auto next =
        contents->settle(offered, context_.options.keeping.grace, RetainedContents::Clock::now());
    if (!next) return;
    timer_.expires_at(*next);
    timer_.async_wait([this](boost::system::error_code error) {
        if (!error) release_unused();
    });
}

}  // namespace gpunbd::server
