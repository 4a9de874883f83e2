// Standard input, output and error as a command relies on them: output that is lost is an error,
// and no socket takes the place of a stream that was closed.
#pragma once

namespace gpunbd::server {

// Before anything else is opened. What writes to a closed stream still gets an error.
void occupy_closed_streams();
// Has all that was printed to standard output arrived? False: standard error says why not.
bool finish_output();
// Says so where writing failed before the end, with this errno.
void tell_output_lost(int error);

}  // namespace gpunbd::server
