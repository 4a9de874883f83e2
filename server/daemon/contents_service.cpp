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

Kept list_kept(const KeptContents& contents) {
    Kept out;
    for (const KeptContents::Summary& each : contents.summaries()) {
        KeptStatus& kept = out.contents.emplace_back();
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

Outcome drop_kept(KeptContents& contents, const std::string& name) {
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

KeptQueries::KeptQueries(ServerContext& context, ExportService& exports)
    : context_(context), exports_(exports) {
    exports.add(*this);
}

void KeptQueries::answer(const ServerAdminBackend::KeptQuery& query) {
    if (!context_.kept.contents) {
        return query.completion(
            NotDone{"no supervisor keeps contents for this server; start it by gpunbd keep, or by "
                    "systemd with "
                    "FileDescriptorStoreMax="});
    }
    if (exports_.busy()) {
        if (waiting_.size() < max_waiting_queries) return waiting_.push_back(query);
        return query.completion(NotDone{"exports are being made; try again later"});
    }
    if (!query.drop) return query.completion(list_kept(*context_.kept.contents));
    if (context_.lifecycle.refuses_changes()) {
        return query.completion(context_.lifecycle.refusal());
    }
    const Outcome outcome = drop_kept(*context_.kept.contents, *query.drop);
    if (std::holds_alternative<Done>(outcome) && !exports_.refused().empty()) exports_.remake();
    query.completion(outcome);
}

void KeptQueries::exports_idle() {
    for (const auto& each : std::exchange(waiting_, {})) answer(each);
}

ContentsService::ContentsService(ServerContext& context, ExportService& exports)
    : context_(context), exports_(exports), timer_(context.io) {
    exports.add(*this);
}

void ContentsService::open() {
    const KeptState& kept = context_.kept;
    DeviceRegistry& devices = context_.devices;
    if (kept.contents) {
        kept.contents->open_devices(context_.options.exports, devices);
    }
    if (context_.supervision.start_gate) wait_for_start_gate();
    if (!devices.lacks_mapping() || !kept.mappings) return;
    // The mappings of the earlier server occupy the address space: release them first.
    devices.close();
    kept.mappings->undo_now();
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
    KeptState& kept = context_.kept;
    if (kept.calibration) {
        const auto& exports = context_.options.exports;
        if (any_keeps(exports)) kept.calibration->keep(context_.devices.calibration_states());
        // Stored mappings hold the memory of all exports. The next server needs the memory of those
        // that are not kept.
        kept.mappings->keep(all_keep(exports) ? context_.devices.mapping_files()
                                              : std::vector<const OwnedFd*>{});
    }
    release_unused();
}

void ContentsService::release_unused() {
    KeptContents* const contents = context_.kept.contents.get();
    if (contents == nullptr) return;
    // Called again when the exports have been made, or when the hand-over has failed.
    if (exports_.busy() || context_.lifecycle.refuses_changes()) return;
    std::vector<KeptContents::Offered> offered;
    const auto exports = context_.exports.snapshot();
    for (const auto& each : *exports) {
        offered.push_back({each->info.name, each->options.keep, each->volume});
    }
    for (const MadeExports::Refused& each : exports_.refused()) {
        offered.push_back({each.name, true, nullptr});
    }
    const auto next =
        contents->settle(offered, context_.options.keeping.grace, KeptContents::Clock::now());
    if (!next) return;
    timer_.expires_at(*next);
    timer_.async_wait([this](boost::system::error_code error) {
        if (!error) release_unused();
    });
}

}  // namespace gpunbd::server
