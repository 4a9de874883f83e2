#include "server/nbd/connection.hpp"

#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

Connection::Connection(WorkerContext& worker, Socket socket, std::string peer,
                       std::uint64_t max_in_flight, std::shared_ptr<ConnectionCounters> counters)
    : OperationContext(worker.trace != nullptr ? &worker.trace->sent : nullptr,
                       Wakeup(worker.scheduler, *this),
                       RequestAccounting(std::move(counters), worker.trace.get()), std::move(peer)),
      worker_(worker),
      transport_(std::move(socket)),
      reader_(worker.receive_buffers),
      admission_(max_in_flight, worker.budget, *this) {}

Connection::~Connection() = default;

void Connection::serve(const protocol::NegotiatedOptions& negotiated,
                       std::shared_ptr<const Export> served, std::span<const std::byte> received,
                       std::shared_ptr<const Export> related) {
    GPUNBD_ASSERT(export_ == nullptr && !closed_, "a connection that is open serves one export");
    negotiated_ = negotiated;
    export_ = std::move(served);
    related_ = std::move(related);
    page_size_ = export_->volume->page_size();
    encoder_ = protocol::ReplyEncoder(negotiated_);
    transfer_.emplace(*export_->volume, worker_.channels, staging_);
    accounting_.serve(worker_.counters.of_export(export_->info.name), export_->activity);
    failure_log_.serve(negotiated_.export_info.name);
    for (storage::Device* device : export_->volume->devices()) worker_.channels.open(*device);
    reader_.begin(negotiated_.headers, received);
    transport_.begin_serving();
}

void Connection::start(Operation& operation, const protocol::Command& command,
                       const CommandCost& cost) {
    GPUNBD_ASSERT(!closed_, "a closed connection starts no request");
    GPUNBD_ASSERT(!operation.is_linked(), "an operation belongs to one connection");
    GPUNBD_ASSERT(lies_in_export(command), "a request that executes lies in the export");
    operation.cost = cost;
    const bool alone = operations_.empty();
    if (alone) worker_.scheduler.begins_work();
    operations_.push_front(operation);
    admission_.enter(cost);
    accounting_.begin(operation, command.type, alone);
    operation.start(*this, command);
}

void Connection::ended(Operation& operation) {
    GPUNBD_ASSERT(operation.is_linked(), "an operation ends once");
    GPUNBD_ASSERT(!needs_reply(operation.state()), "an operation ends after its answer");
    operations_.erase(operations_.iterator_to(operation));
    if (operation.state() != RequestState::answered) [[unlikely]]
        accounting_.abandoned(operation.command().type);
    bool may_take = admission_.leave(operation.cost);
    if (&operation == half_written_) [[unlikely]] {
        half_written_ = nullptr;
        may_take = true;
        if (operation.state() == RequestState::answered) {  // it has failed, so its rest is dropped
            reader_.expect_discarded(half_write_.length - half_write_.arrived);
            half_write_ = {};
        }
    }
    operation.return_to(worker_.operations);
    if (operations_.empty()) {
        worker_.scheduler.ends_work();
        if (draining_) transport_.stop_receiving();
    }
    if (may_take) wakeup_.resume();
}

void Connection::drain() {
    GPUNBD_ASSERT(export_ != nullptr, "a connection that drains has served");
    draining_ = true;
    quiesced_ = Quiesced::no;
    reason_ = "the server is stopping";
    if (export_->contents_outlive_server()) {
        // The client reconnects and repeats its unanswered requests. An error would be final.
        if (admission_.holding()) admission_.withdraw();
        stop_taking();
    }
    if (operations_.empty()) transport_.stop_receiving();
    // The coroutine may wait for resume() or for the rates, neither of which will come.
    wakeup_.resume();
}

void Connection::stop_taking() {
    end_of_requests_ = true;
    if (WriteOperation* const broken = reader_.stop_writing(); broken != nullptr) {
        broken->abandon();  // the rest of its payload will never arrive
    }
}

bool Connection::settle() {
    flush();
    wakeup_.clear();  // what flush() announced is checked here
    return closed_ || (operations_.empty() && send_queue_.empty());
}

void Connection::close(std::string reason) noexcept {
    if (closed_) return;
    closed_ = true;
    reason_ = std::move(reason);
    accounting_.publish();
    if (admission_.holding()) admission_.withdraw();
    reader_.stop_writing();
    send_queue_.clear();
    transport_.close();
    for (auto next = operations_.begin(); next != operations_.end();) (next++)->abandon();
    GPUNBD_ASSERT(send_queue_.empty(), "a closed connection sends nothing");
    wakeup_.resume();
}

}  // namespace gpunbd::server
