#include "server/daemon/takeover.hpp"

#include <spdlog/spdlog.h>

#include <stdexcept>
#include <utility>

#include "server/daemon/open_channels.hpp"
#include "server/handover/import_contents.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr auto store_timeout = std::chrono::seconds(10);

}  // namespace

Takeover::Takeover(ServerContext& context, WorkerPool& workers, const ExportService& exports,
                   ConnectionDispatcher& dispatcher, ServerControl& control)
    : context_(context),
      workers_(workers),
      exports_(exports),
      dispatcher_(dispatcher),
      control_(control) {
    GPUNBD_ASSERT(context.supervision.predecessor, "a server takes over from a predecessor");
}

// The predecessor serves until take_rest(), so slow work is done before. With one H200 and 64 GiB
// in use, importing the slabs takes 250 ms, and opening the channels of 16 workers 350 ms.
void Takeover::import_contents() {
    Supervision& supervision = context_.supervision;
    Predecessor& predecessor = *supervision.predecessor;
    if (!supervision.store) {
        throw std::runtime_error("no supervisor stores the contents that are taken over");
    }
    std::vector<storage::Device*> devices;
    for (const std::string& identity : predecessor.devices()) {
        devices.push_back(&context_.devices.open_hardware(identity, ""));
    }
    workers_.start();
    for (std::future<void>& each : open_channels(workers_.workers(), devices)) each.get();
    RetainedContents::Imported imported =
        server::import_contents(predecessor.take_contents_to_import(), context_.devices);
    std::size_t slabs = 0;
    for (const auto& [unused, each] : imported) slabs += each->size();
    spdlog::info("upgrade: imported {} slab{} while the earlier process still serves", slabs,
                 slabs == 1 ? "" : "s");
    Predecessor::Rest rest = predecessor.take_rest();
    for (auto& each : rest.contents) {
        supervision.store->add_stored(each.name);
        supervision.inherited.add(each.name, std::move(each.descriptor));
    }
    GPUNBD_ASSERT(clients_.empty(), "connections are taken over once");
    clients_ = std::move(rest.clients);
    auto& contents = context_.retained.contents;
    contents = std::make_unique<RetainedContents>(*supervision.store, supervision.inherited,
                                                  store_timeout, std::move(imported));
    contents->quiesce();
}

void Takeover::start() {
    if (!exports_.refused().empty()) throw std::runtime_error(exports_.refused().front().why);
    context_.supervision.predecessor->wait_until_active();
    context_.supervision.release_messages();
    context_.retained.contents->resume();
    spdlog::info("serving in place of an earlier process, with {} of its connections",
                 clients_.size());
    for (Predecessor::Client& client : std::exchange(clients_, {})) {
        dispatcher_.adopt(std::move(client));
    }
    control_.taken_over();
}

}  // namespace gpunbd::server
