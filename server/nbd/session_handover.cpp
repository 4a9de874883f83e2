#include <fcntl.h>

#include <chrono>
#include <memory>
#include <utility>

#include "server/nbd/session.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

bool Session::contents_outlive_server() const { return connection_->contents_outlive_server(); }

void Session::quiesce() noexcept {
    quiescing_ = true;
    if (!contents_outlive_server()) return;
    try {
        connection_->quiesce();
    } catch (const std::exception&) {
        cut(Connection::no_memory);
    }
}

void Session::resume() noexcept {
    quiescing_ = moved_ = false;
    try {
        connection_->resume();
    } catch (const std::exception&) {
        cut(Connection::no_memory);
    }
}

bool Session::quiet() const { return !contents_outlive_server() || connection_->quiet(); }

std::unique_ptr<Session::Moving> Session::move_away() {
    if (!contents_outlive_server() || !connection_->can_move()) return nullptr;
    OwnedFd socket(::fcntl(connection_->transport().descriptor(), F_DUPFD_CLOEXEC, 0));
    if (socket.get() < 0) return nullptr;
    GPUNBD_ASSERT(!moved_ && quiescing_, "a paused session moves away once");
    auto moving = std::make_unique<Moving>(std::move(socket), ConnectionState{});
    connection_->describe(moving->state);
    moving->state.listener = peer_.listener;
    moving->state.milliseconds = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_).count());
    moved_ = true;
    return moving;
}

void Session::leave() noexcept {
    if (moved_) {
        connection_->leave();
        return;
    }
    drain();
    leaving_ = negotiation_.has_value();
}

bool Session::take_over(const ConnectionState& earlier) {
    const protocol::ExportInfo& info = earlier.negotiated.export_info;
    export_name_ = info.name;
    started_ -= std::chrono::milliseconds(earlier.milliseconds);
    reason_ = offered_.enter(export_name_);
    lease_ = offered_.take_lease();
    if (!lease_) return false;
    OfferedExports::Opened opened = offered_.open(export_name_);
    if (!opened.exported || opened.info.size != info.size ||
        opened.info.read_only != info.read_only) {
        reason_ = "the new server offers a different export of this name";
        return false;
    }
    GPUNBD_ASSERT(!negotiation_, "a session that is taken over does not negotiate");
    connection_->serve(earlier.negotiated, std::move(opened.exported), earlier.received);
    connection_->limit_rates(lease_->rates());
    connection_->continue_from(earlier);
    publish_facts();
    watch_client();
    return true;
}

}  // namespace gpunbd::server
