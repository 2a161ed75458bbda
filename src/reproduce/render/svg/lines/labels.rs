//! Names at the ends of lines, moved apart where the lines end near each other. May use: nothing.

/// Where labels that want to be centred at `wanted`, of these `heights`, are centred: in the order of what they
/// want, within `from` and `to` as far as there is room.
pub(super) fn apart(wanted: &[f64], heights: &[f64], (from, to): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut places = wanted.to_vec();
    let mut top = from;
    for place in &order {
        let half = 0.5 * heights[*place];
        places[*place] = places[*place].max(top + half);
        top = places[*place] + half;
    }
    // What has been pushed out at the bottom goes back up, and what is in its way.
    let mut bottom = to.max(from + heights.iter().sum::<f64>());
    for place in order.iter().rev() {
        let half = 0.5 * heights[*place];
        places[*place] = places[*place].min(bottom - half);
        bottom = places[*place] - half;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stay_where_there_is_room() {
        let places = apart(&[50.0, 10.0], &[16.0, 16.0], (0.0, 100.0));
        assert_eq!(places, [50.0, 10.0]);
    }

    #[test]
    fn labels_do_not_overlap_and_keep_their_order() {
        let wanted = [97.0, 95.0, 96.0, 10.0];
        let places = apart(&wanted, &[16.0; 4], (0.0, 100.0));
        assert_eq!(places, [92.0, 60.0, 76.0, 10.0]);
    }
}
