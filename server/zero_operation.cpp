#include "server/zero_operation.hpp"

#include "server/session.hpp"
#include "server/wire_error.hpp"

namespace gpunbd::server {

void ZeroOperation::start(Session& session, const protocol::Command& command) {
    attach(session, command);
    transfer_.begin(session.volume(), session.lanes(), session.staging(), *this, command.offset,
                    command.length, command.no_hole);
    answer_if_done();
}

void ZeroOperation::transfer_moved(storage::Transfer&) {
    session_->flush_soon();
    answer_if_done();
}

void ZeroOperation::answer_if_done() {
    if (!transfer_.done()) return;
    if (!abandoned_) {
        if (transfer_.status() != storage::Status::ok) {
            session_->report_failure(*this, transfer_.status());
        }
        protocol::ReplyHeader header;
        session_->send_header(header, protocol::encode_simple_reply(
                                          header, wire_error(transfer_.status()), command_.cookie));
    }
    session_->finish(*this);
}

void ZeroOperation::abandon() {
    abandoned_ = true;
    answer_if_done();
}

}  // namespace gpunbd::server
