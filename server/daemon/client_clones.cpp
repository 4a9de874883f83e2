#include "server/daemon/client_clones.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "config/client_clones.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "server/base/line_limit.hpp"
#include "server/base/task_group.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

using config::ExportOptions;

constexpr std::size_t max_waiting = 256;  // edits; administrators have the rest of the queue

// The reason why the template has no room for another clone, with the remedy; empty: it has.
std::string lack_of_room(const config::Options& options, const ExportOptions& its_template,
                         const CloneRequest& request) {
    const config::CloneTemplate& limits = its_template.clone_per_client;
    const auto clones = [&](const auto& counts) {
        return std::ranges::count_if(options.exports, [&](const ExportOptions& each) {
            return each.provenance.made_by == its_template.name && counts(each);
        });
    };
    const auto of_peer = [&](const ExportOptions& each) {
        return each.provenance.peer == request.peer;
    };
    constexpr const char* remedy = "or remove unused ones by gpunbd export remove";
    if (clones([](const ExportOptions&) { return true; }) >= limits.max) {
        return fmt::format("there are {} clones; raise clone_per_client.max, {}", limits.max,
                           remedy);
    }
    const std::uint32_t max_of_peer = limits.max_per_peer.value_or(limits.max);
    if (clones(of_peer) >= max_of_peer) {
        return fmt::format("{} has {} clones; raise clone_per_client.max_per_peer, {}",
                           request.peer, max_of_peer, remedy);
    }
    if (options.exports.size() >= config::rules::max_exports) {
        return fmt::format("the server has {} exports, which is its limit; remove some",
                           options.exports.size());
    }
    return {};
}

const ExportOptions* template_in(const config::Options& options, const CloneRequest& request) {
    const auto found =
        std::ranges::find(options.exports, request.template_name, &ExportOptions::name);
    return found != options.exports.end() && found->is_template() ? &*found : nullptr;
}

// Another connection of the client may have been first.
bool has_clone(const config::Options& options, const ExportOptions& its_template,
               const CloneRequest& request) {
    const std::string name = config::name_of_clone(its_template, request.client);
    return std::ranges::find(options.exports, name, &ExportOptions::name) != options.exports.end();
}

// The reason why the client gets no clone, for the client; empty: it gets one.
std::string refusal_of(const config::Options& options, const CloneRequest& request) {
    const ExportOptions* const its_template = template_in(options, request);
    if (its_template == nullptr) return "the export was removed";
    if (has_clone(options, *its_template, request)) return {};
    const std::string why = lack_of_room(options, *its_template, request);
    if (why.empty()) return {};
    ClientLine(spdlog::level::warn)
        .with("export", its_template->name)
        .with("peer", request.peer)
        .log("export {}: no clone for {}: {}", config::in_quotes(its_template->name),
             config::in_quotes(request.client), why);
    return "there are too many clones of this export";
}

// The reason why the source of the clone cannot be cloned now, for the client; empty: it can.
std::string lack_of_source(const ServerContext& context, const CloneRequest& request) {
    const ExportOptions* const its_template = template_in(context.options, request);
    GPUNBD_ASSERT(its_template != nullptr, "a request that is not refused has its template");
    if (has_clone(context.options, *its_template, request)) return {};
    const auto source = context.exports.find(its_template->clone_per_client.of);
    if (!source || source->volume->complete()) return {};
    return "the export that it is a clone of is being restored; try again later";
}

// `added`: the clone, if there was none. It is kept if its source is.
Expected<void> add_clone(config::Options& options, const CloneRequest& request,
                         std::optional<ExportOptions>& added) {
    if (std::string why = refusal_of(options, request); !why.empty()) return why;
    const ExportOptions& its_template = *template_in(options, request);
    if (has_clone(options, its_template, request)) return {};
    ExportOptions clone = config::options_of_clone(its_template, request.client);
    clone.provenance.peer = request.peer;
    clone.provenance.created = std::time(nullptr);
    const auto source = std::ranges::find(options.exports, clone.clone_of, &ExportOptions::name);
    GPUNBD_ASSERT(source != options.exports.end(), "the source of a template's clones exists");
    clone.keep = source->keep;
    added = clone;
    options.exports.push_back(std::move(clone));
    return {};
}

}  // namespace

ClientClones::ClientClones(ServerContext& context, ExportService& exports)
    : context_(context), exports_(exports), calls_(context.io), tasks_(context.io) {
    context.exports.clone_requests().set_receiver([this](CloneRequest request) {
        calls_.post([this, request = std::move(request)] { tasks_.start(make(request)); });
    });
}

ClientClones::~ClientClones() { context_.exports.clone_requests().set_receiver({}); }

void ClientClones::stop() {
    context_.exports.clone_requests().set_receiver({});
    tasks_.clear();
}

Task<> ClientClones::make(CloneRequest request) {
    // A refusal does not wait for the creation of other exports.
    std::string why = refusal_of(context_.options, request);
    if (why.empty()) why = lack_of_source(context_, request);
    if (why.empty() && waiting_ == max_waiting) {
        why = "too many clones are being made; try again later";
    }
    if (!why.empty()) co_return request.answer(why);
    const Counted waiting(waiting_);
    Expected<ExportEdit> edit = co_await exports_.begin();
    std::optional<ExportOptions> added;
    Expected<void> done = edit ? add_clone(edit->options, request, added) : edit.error();
    if (done) {
        edit->by_client = true;
        done = exports_.check(*edit);
    }
    const ExportService::Work work = [&](const std::stop_token& stop) {
        Expected<void> made = exports_.make_exports(*edit, stop);
        if (!made) return made;
        exports_.drop_earlier(*edit);
        return added && added->keep ? context_.kept.keep(*added) : made;
    };
    if (done) done = co_await exports_.make_and_publish(*edit, work);
    request.answer(done ? std::string() : done.error());
}

}  // namespace gpunbd::server
